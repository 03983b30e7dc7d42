/* Opening a plugin, and its errors.
 *
 * Any thread. A plugin is a stranger: before the first call through its table the version, the
 * table's size and every entry that this room cannot do without are looked at, so that a library
 * that is no plugin, or an old one, is a status that names what is missing. Plugins start threads
 * and register handlers that outlive their client; none survives dlclose, so none is closed. */
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>

#include "pjrt/pjrt_int.h"

/* What this room calls without asking again. */
#define REQUIRED_LIST(X)                                                                           \
    X(PJRT_Error_Destroy)                                                                          \
    X(PJRT_Error_Message)                                                                          \
    X(PJRT_Error_GetCode)                                                                          \
    X(PJRT_Plugin_Initialize)                                                                      \
    X(PJRT_Event_Destroy)                                                                          \
    X(PJRT_Event_Await)                                                                            \
    X(PJRT_Client_Create)                                                                          \
    X(PJRT_Client_Destroy)                                                                         \
    X(PJRT_Client_PlatformName)                                                                    \
    X(PJRT_Client_PlatformVersion)                                                                 \
    X(PJRT_Client_Devices)                                                                         \
    X(PJRT_Client_AddressableDevices)                                                              \
    X(PJRT_Client_Compile)                                                                         \
    X(PJRT_Client_BufferFromHostBuffer)                                                            \
    X(PJRT_DeviceDescription_Id)                                                                   \
    X(PJRT_DeviceDescription_ProcessIndex)                                                         \
    X(PJRT_DeviceDescription_Attributes)                                                           \
    X(PJRT_DeviceDescription_Kind)                                                                 \
    X(PJRT_DeviceDescription_DebugString)                                                          \
    X(PJRT_Device_GetDescription)                                                                  \
    X(PJRT_Device_IsAddressable)                                                                   \
    X(PJRT_Executable_Destroy)                                                                     \
    X(PJRT_Executable_NumOutputs)                                                                  \
    X(PJRT_LoadedExecutable_Destroy)                                                               \
    X(PJRT_LoadedExecutable_GetExecutable)                                                         \
    X(PJRT_LoadedExecutable_Execute)                                                               \
    X(PJRT_Buffer_Destroy)                                                                         \
    X(PJRT_Buffer_ToHostBuffer)

/* The plugin's code, which has the numbers of hr_status. */
static hr_status error_code(const PJRT_Api *api, const PJRT_Error *e)
{
    PJRT_Error_GetCode_Args args = { .struct_size = PJRT_Error_GetCode_Args_STRUCT_SIZE,
                                     .error = e };
    PJRT_Error *again = api->PJRT_Error_GetCode(&args);
    bool unknown =
        again || args.code <= PJRT_Error_Code_OK || args.code > PJRT_Error_Code_UNAUTHENTICATED;
    hr_pjrt_ignore(api, again);
    return unknown ? HR_UNKNOWN : (hr_status)args.code;
}

void hr_pjrt_ignore(const PJRT_Api *api, PJRT_Error *e)
{
    PJRT_Error_Destroy_Args args = { .struct_size = PJRT_Error_Destroy_Args_STRUCT_SIZE,
                                     .error = e };
    if (e) api->PJRT_Error_Destroy(&args);
}

hr_status hr_pjrt_error(const PJRT_Api *api, PJRT_Error *e, const char *what)
{
    if (!e) return HR_OK;
    PJRT_Error_Message_Args m = { .struct_size = PJRT_Error_Message_Args_STRUCT_SIZE, .error = e };
    api->PJRT_Error_Message(&m);
    hr_str text = { m.message ? m.message : "", m.message ? m.message_size : 0 };
    hr_status st = hr_fail(error_code(api, e), "pjrt: %s: %.*s", what, HR_STR_ARG(text));
    hr_pjrt_ignore(api, e);
    return st;
}

hr_status hr_pjrt_await(const PJRT_Api *api, PJRT_Event *e, const char *what)
{
    if (!e) return HR_OK;
    PJRT_Event_Await_Args wait = { .struct_size = PJRT_Event_Await_Args_STRUCT_SIZE, .event = e };
    hr_status st = hr_pjrt_error(api, api->PJRT_Event_Await(&wait), what);
    PJRT_Event_Destroy_Args end = { .struct_size = PJRT_Event_Destroy_Args_STRUCT_SIZE,
                                    .event = e };
    hr_pjrt_ignore(api, api->PJRT_Event_Destroy(&end));
    return st;
}

static hr_status check_api(const char *path, const PJRT_Api *api)
{
    if (!api || api->struct_size < offsetof(PJRT_Api, PJRT_Error_Destroy))
        return hr_fail(HR_FAILED_PRECONDITION, "%s: GetPjrtApi gives no PJRT table", path);
    int major = api->pjrt_api_version.major_version, minor = api->pjrt_api_version.minor_version;
    if (major != PJRT_API_MAJOR)
        return hr_fail(HR_FAILED_PRECONDITION, "%s: PJRT API %d.%d, this build speaks %d.x", path,
                       major, minor, PJRT_API_MAJOR);
#define CHECK_MEMBER(member)                                                                       \
    if (!HR_PJRT_HAS(api, member))                                                                 \
        return hr_fail(HR_FAILED_PRECONDITION,                                                     \
                       "%s: PJRT API %d.%d is too old: it has no " #member, path, major, minor);
    REQUIRED_LIST(CHECK_MEMBER)
#undef CHECK_MEMBER
    return HR_OK;
}

static hr_status find_api(const char *path, const PJRT_Api **out)
{
    char real[PATH_MAX]; /* a bare name would be looked for in the system's library folders */
    if (!realpath(path, real))
        return hr_fail(errno == EACCES ? HR_PERMISSION_DENIED : HR_NOT_FOUND, "%s: %s", path,
                       strerror(errno));
    setenv("TF_CPP_MIN_LOG_LEVEL", "3", 0); /* XLA logs to stderr unless told */
    void *library = dlopen(real, RTLD_NOW | RTLD_LOCAL);
    if (!library) return hr_fail(HR_FAILED_PRECONDITION, "%s is no plugin: %s", path, dlerror());
    /* POSIX lets a data pointer become a function's; ISO C has no cast for it */
    const PJRT_Api *(*get)(void) = NULL;
    void *symbol = dlsym(library, "GetPjrtApi");
    if (!symbol)
        return hr_fail(HR_FAILED_PRECONDITION, "%s is no PJRT plugin: it has no GetPjrtApi", path);
    memcpy(&get, &symbol, sizeof get);
    *out = get();
    return HR_OK;
}

hr_status hr_pjrt_plugin_open(const char *path, const PJRT_Api **out)
{
    const PJRT_Api *api = NULL;
    *out = NULL;
    HR_TRY(find_api(path, &api));
    HR_TRY(check_api(path, api));
    PJRT_Plugin_Initialize_Args args = { .struct_size = PJRT_Plugin_Initialize_Args_STRUCT_SIZE };
    HR_TRY(hr_pjrt_error(api, api->PJRT_Plugin_Initialize(&args), "plugin initialisation"));
    *out = api;
    return HR_OK;
}
