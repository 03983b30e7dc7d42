/* A plugin that computes nothing and fails where it is told to: at the n-th call of any kind, or
 * late, when the n-th event is awaited. It counts what it gives out, so that a leak shows.
 *
 * Built five ways: as it is; with a table that ends early (STUB_SHORT); of another major version
 * (STUB_MAJOR); without a table (STUB_NO_TABLE); that gives no program out (STUB_PLAIN). */
#include <pjrt_c_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "stub_plugin.h"

struct PJRT_Error {
    char text[64];
};
struct PJRT_Event {
    int fails;
    int open; /* not ready: of memory that a buffer still borrows */
};
struct PJRT_Buffer {
    size_t bytes;
    const void *lent; /* the host memory that it borrows, or NULL */
    PJRT_Event *held;
    PJRT_Device *on;
    unsigned char data[];
};
struct PJRT_Client {
    int id;
};
struct PJRT_LoadedExecutable {
    size_t results, replicas;
};
struct PJRT_Executable {
    size_t results;
};
struct PJRT_SerializedExecutable {
    char text[64];
};
struct PJRT_Device {
    int id;
};
struct PJRT_DeviceDescription {
    int id;
};

static stub_state state = { .results = 1 };
enum { DEVICES = 3 };
static struct PJRT_Device all[DEVICES];
static PJRT_Device *const devices[] = { &all[0], &all[1], &all[2] };
static PJRT_Device *const backwards[] = { &all[2], &all[1], &all[0] };
static struct PJRT_DeviceDescription the_description;

stub_state *stub_get_state(void)
{
    return &state;
}

static void *give(size_t bytes)
{
    state.alive++;
    return calloc(1, bytes);
}

static void take(void *p)
{
    if (!p) return;
    state.alive--;
    free(p);
}

static PJRT_Error *fail(void)
{
    PJRT_Error *e = give(sizeof *e);
    strcpy(e->text, "the stub was told to fail");
    return e;
}

/* Opens every call but those about errors. */
static PJRT_Error *count(void)
{
    return ++state.calls == state.fail_at ? fail() : NULL;
}

#define COUNT()                                                                                    \
    do {                                                                                           \
        PJRT_Error *e_ = count();                                                                  \
        if (e_) return e_;                                                                         \
    } while (0)

static PJRT_Event *new_event(void)
{
    PJRT_Event *e = give(sizeof *e);
    e->fails = ++state.events == state.fail_event;
    return e;
}

static void error_destroy(PJRT_Error_Destroy_Args *a)
{
    take(a->error);
}

static void error_message(PJRT_Error_Message_Args *a)
{
    a->message = a->error->text;
    a->message_size = strlen(a->error->text);
}

static PJRT_Error *error_code(PJRT_Error_GetCode_Args *a)
{
    a->code = PJRT_Error_Code_UNAVAILABLE;
    return NULL;
}

static PJRT_Error *initialize(PJRT_Plugin_Initialize_Args *a)
{
    (void)a;
    return count();
}

static PJRT_Error *event_destroy(PJRT_Event_Destroy_Args *a)
{
    take(a->event);
    return NULL;
}

static PJRT_Error *event_await(PJRT_Event_Await_Args *a)
{
    COUNT();
    if (a->event->open) state.spoiled++; /* a plugin would wait for ever */
    return a->event->fails ? fail() : NULL;
}

static PJRT_Error *event_is_ready(PJRT_Event_IsReady_Args *a)
{
    COUNT();
    a->is_ready = !a->event->open;
    return NULL;
}

static PJRT_Error *client_create(PJRT_Client_Create_Args *a)
{
    COUNT();
    a->client = give(sizeof *a->client);
    return NULL;
}

static PJRT_Error *client_destroy(PJRT_Client_Destroy_Args *a)
{
    take(a->client);
    return NULL;
}

static PJRT_Error *platform_name(PJRT_Client_PlatformName_Args *a)
{
    COUNT();
    a->platform_name = "stub";
    a->platform_name_size = 4;
    return NULL;
}

static PJRT_Error *platform_version(PJRT_Client_PlatformVersion_Args *a)
{
    COUNT();
    a->platform_version = "a \"quoted\"\nversion";
    a->platform_version_size = strlen(a->platform_version);
    return NULL;
}

static PJRT_Error *all_devices(PJRT_Client_Devices_Args *a)
{
    COUNT();
    a->devices = devices;
    a->num_devices = 1;
    return NULL;
}

static PJRT_Error *addressable(PJRT_Client_AddressableDevices_Args *a)
{
    COUNT();
    a->addressable_devices = devices;
    a->num_addressable_devices = state.no_devices ? 0 : state.devices ? state.devices : 1;
    return NULL;
}

static PJRT_Error *compile(PJRT_Client_Compile_Args *a)
{
    COUNT();
    int nth = ++state.compiles;
    if (++state.inside >= state.meet) state.met = 1;
    for (int i = 0; state.meet && !state.met && i < 10000; i++) usleep(1000);
    state.inside--;
    if (nth == state.fail_compile || (state.meet && !state.met)) return fail();
    a->executable = give(sizeof *a->executable);
    a->executable->results = state.results;
    a->executable->replicas = (size_t)a->compile_options[3];
    return NULL;
}

static PJRT_Error *loaded_devices(PJRT_LoadedExecutable_AddressableDevices_Args *a)
{
    COUNT();
    a->addressable_devices = state.backwards ? backwards : devices;
    a->num_addressable_devices = a->executable->replicas;
    return NULL;
}

#ifndef STUB_PLAIN
static void serialized_delete(PJRT_SerializedExecutable *x)
{
    take(x);
}

static PJRT_Error *serialize(PJRT_Executable_Serialize_Args *a)
{
    COUNT();
    PJRT_SerializedExecutable *x = give(sizeof *x);
    snprintf(x->text, sizeof x->text, "stub %zu",
             state.blob_results ? state.blob_results : a->executable->results);
    a->serialized_executable = x;
    a->serialized_executable_deleter = serialized_delete;
    a->serialized_bytes = x->text;
    a->serialized_bytes_size = strlen(x->text);
    return NULL;
}

static PJRT_Error *load(PJRT_Executable_DeserializeAndLoad_Args *a)
{
    COUNT();
    char text[64] = { 0 };
    size_t results;
    if (a->serialized_executable_size >= sizeof text || state.refuse_load) return fail();
    memcpy(text, a->serialized_executable, a->serialized_executable_size);
    if (sscanf(text, "stub %zu", &results) != 1) return fail();
    state.loads++;
    a->loaded_executable = give(sizeof *a->loaded_executable);
    a->loaded_executable->results = results;
    return NULL;
}

#endif

/* Not counted: its failure changes nothing. */
static PJRT_Error *memory_stats(PJRT_Executable_GetCompiledMemoryStats_Args *a)
{
    a->temp_size_in_bytes = 4096;
    a->generated_code_size_in_bytes = 777;
    return NULL;
}

static size_t element_bytes(PJRT_Buffer_Type type)
{
    if (type == PJRT_Buffer_Type_F32 || type == PJRT_Buffer_Type_S32) return 4;
    return type == PJRT_Buffer_Type_F16 || type == PJRT_Buffer_Type_BF16 ? 2 : 1;
}

static PJRT_Error *from_host(PJRT_Client_BufferFromHostBuffer_Args *a)
{
    COUNT();
    size_t bytes = element_bytes(a->type);
    for (size_t i = 0; i < a->num_dims; i++) bytes *= (size_t)a->dims[i];
    a->buffer = give(sizeof *a->buffer + bytes);
    a->buffer->bytes = bytes;
    a->buffer->on = a->device;
    memcpy(a->buffer->data, a->data, bytes);
    a->done_with_host_buffer = new_event();
    if (!state.borrows || a->host_buffer_semantics != PJRT_HostBufferSemantics_kImmutableZeroCopy)
        return NULL;
    state.lent++;
    a->buffer->lent = a->data;
    a->buffer->held = a->done_with_host_buffer;
    a->buffer->held->open = 1;
    return NULL;
}

static PJRT_Error *description_id(PJRT_DeviceDescription_Id_Args *a)
{
    COUNT();
    a->id = 7;
    return NULL;
}

static PJRT_Error *description_process(PJRT_DeviceDescription_ProcessIndex_Args *a)
{
    COUNT();
    a->process_index = 3;
    return NULL;
}

static PJRT_Error *description_attributes(PJRT_DeviceDescription_Attributes_Args *a)
{
    COUNT();
    static const int64_t coords[] = { 1, 0, 2 };
    static const PJRT_NamedValue values[] = {
        { .name = "coords",
          .name_size = 6,
          .type = PJRT_NamedValue_kInt64List,
          .int64_array_value = coords,
          .value_size = 3 },
        { .name = "core_on_chip",
          .name_size = 12,
          .type = PJRT_NamedValue_kInt64,
          .int64_value = 1,
          .value_size = 1 },
    };
    a->attributes = values;
    a->num_attributes = 2;
    return NULL;
}

static PJRT_Error *description_kind(PJRT_DeviceDescription_Kind_Args *a)
{
    COUNT();
    a->device_kind = "stub core";
    a->device_kind_size = 9;
    return NULL;
}

static PJRT_Error *description_text(PJRT_DeviceDescription_DebugString_Args *a)
{
    COUNT();
    a->debug_string = "STUB_7";
    a->debug_string_size = 6;
    return NULL;
}

static PJRT_Error *device_description(PJRT_Device_GetDescription_Args *a)
{
    COUNT();
    a->device_description = &the_description;
    return NULL;
}

static PJRT_Error *is_addressable(PJRT_Device_IsAddressable_Args *a)
{
    COUNT();
    a->is_addressable = true;
    return NULL;
}

/* Not counted: its failure changes nothing. */
static PJRT_Error *device_memory(PJRT_Device_MemoryStats_Args *a)
{
    if (!state.memory) return fail();
    a->bytes_in_use = state.memory;
    a->bytes_limit = state.memory * 2;
    a->bytes_limit_is_set = true;
    return NULL;
}

static PJRT_Error *executable_destroy(PJRT_Executable_Destroy_Args *a)
{
    take(a->executable);
    return NULL;
}

static PJRT_Error *num_outputs(PJRT_Executable_NumOutputs_Args *a)
{
    COUNT();
    a->num_outputs = a->executable->results;
    return NULL;
}

static PJRT_Error *loaded_destroy(PJRT_LoadedExecutable_Destroy_Args *a)
{
    take(a->executable);
    return NULL;
}

static PJRT_Error *get_executable(PJRT_LoadedExecutable_GetExecutable_Args *a)
{
    COUNT();
    a->executable = give(sizeof *a->executable);
    a->executable->results = a->loaded_executable->results;
    return NULL;
}

/* Every result is a copy of the device's first argument. A list for each replica, of buffers on its
 * device alone: anything else fails. */
static PJRT_Error *execute(PJRT_LoadedExecutable_Execute_Args *a)
{
    COUNT();
    if (a->num_devices != a->executable->replicas) return fail();
    for (size_t d = 0; d < a->num_devices; d++)
        for (size_t i = 0; i < a->num_args; i++)
            if (a->argument_lists[d][i]->on != devices[d]) return fail();
    for (size_t d = 0; d < a->num_devices; d++) {
        const PJRT_Buffer *from = a->argument_lists[d][0];
        for (size_t i = 0; i < state.results; i++) {
            PJRT_Buffer *to = give(sizeof *to + from->bytes);
            memcpy(to, from, sizeof *to + from->bytes);
            a->output_lists[d][i] = to;
        }
        a->device_complete_events[d] = new_event();
    }
    return NULL;
}

static PJRT_Error *buffer_destroy(PJRT_Buffer_Destroy_Args *a)
{
    PJRT_Buffer *x = a->buffer;
    if (x && x->lent) { /* it must be there, and be what it was, to the end */
        state.spoiled += memcmp(x->lent, x->data, x->bytes) != 0;
        x->held->open = 0;
    }
    take(x);
    return NULL;
}

static PJRT_Error *to_host(PJRT_Buffer_ToHostBuffer_Args *a)
{
    COUNT();
    memcpy(a->dst, a->src->data, a->src->bytes);
    a->event = new_event();
    return NULL;
}

/* ---- a topology ----------------------------------------------------------------------------- */

struct PJRT_TopologyDescription {
    int id;
};

static PJRT_Error *topology_create(PJRT_TopologyDescription_Create_Args *a)
{
    COUNT();
    a->topology = give(sizeof *a->topology);
    return NULL;
}

static PJRT_Error *topology_destroy(PJRT_TopologyDescription_Destroy_Args *a)
{
    take(a->topology);
    return NULL;
}

static PJRT_Error *topology_name(PJRT_TopologyDescription_PlatformName_Args *a)
{
    COUNT();
    a->platform_name = "stub";
    a->platform_name_size = 4;
    return NULL;
}

static PJRT_Error *topology_version(PJRT_TopologyDescription_PlatformVersion_Args *a)
{
    COUNT();
    a->platform_version = "a version";
    a->platform_version_size = strlen(a->platform_version);
    return NULL;
}

static PJRT_Error *topology_devices(PJRT_TopologyDescription_GetDeviceDescriptions_Args *a)
{
    static PJRT_DeviceDescription *const descriptions[] = { &the_description, &the_description };
    COUNT();
    a->descriptions = descriptions;
    a->num_descriptions = 2;
    return NULL;
}

static PJRT_Error *compile_for(PJRT_Compile_Args *a)
{
    COUNT();
    a->executable = give(sizeof *a->executable);
    return NULL;
}

static PJRT_Error *code_size(PJRT_Executable_SizeOfGeneratedCodeInBytes_Args *a)
{
    COUNT();
    a->size_in_bytes = 1000;
    return NULL;
}

#ifdef STUB_SHORT
#define TABLE_SIZE offsetof(PJRT_Api, PJRT_Buffer_ToHostBuffer)
#else
#define TABLE_SIZE PJRT_Api_STRUCT_SIZE
#endif
#ifndef STUB_MAJOR
#define STUB_MAJOR PJRT_API_MAJOR
#endif

const PJRT_Api *GetPjrtApi(void)
{
    static const PJRT_Api api = {
        .struct_size = TABLE_SIZE,
        .pjrt_api_version = { .struct_size = PJRT_Api_Version_STRUCT_SIZE,
                              .major_version = STUB_MAJOR,
                              .minor_version = 5 },
        .PJRT_Error_Destroy = error_destroy,
        .PJRT_Error_Message = error_message,
        .PJRT_Error_GetCode = error_code,
        .PJRT_Plugin_Initialize = initialize,
        .PJRT_Event_Destroy = event_destroy,
        .PJRT_Event_Await = event_await,
        .PJRT_Client_Create = client_create,
        .PJRT_Client_Destroy = client_destroy,
        .PJRT_Client_PlatformName = platform_name,
        .PJRT_Client_PlatformVersion = platform_version,
        .PJRT_Client_Devices = all_devices,
        .PJRT_Client_AddressableDevices = addressable,
        .PJRT_Client_Compile = compile,
        .PJRT_Client_BufferFromHostBuffer = from_host,
        .PJRT_DeviceDescription_Id = description_id,
        .PJRT_DeviceDescription_ProcessIndex = description_process,
        .PJRT_DeviceDescription_Attributes = description_attributes,
        .PJRT_DeviceDescription_Kind = description_kind,
        .PJRT_DeviceDescription_DebugString = description_text,
        .PJRT_Device_GetDescription = device_description,
        .PJRT_Device_IsAddressable = is_addressable,
        .PJRT_Device_MemoryStats = device_memory,
#ifndef STUB_PLAIN
        .PJRT_Executable_Serialize = serialize,
        .PJRT_Executable_DeserializeAndLoad = load,
#endif
        .PJRT_Executable_GetCompiledMemoryStats = memory_stats,
        .PJRT_Executable_Destroy = executable_destroy,
        .PJRT_Executable_NumOutputs = num_outputs,
        .PJRT_LoadedExecutable_Destroy = loaded_destroy,
        .PJRT_LoadedExecutable_GetExecutable = get_executable,
        .PJRT_LoadedExecutable_AddressableDevices = loaded_devices,
        .PJRT_LoadedExecutable_Execute = execute,
        .PJRT_Event_IsReady = event_is_ready,
        .PJRT_Buffer_Destroy = buffer_destroy,
        .PJRT_Buffer_ToHostBuffer = to_host,
        .PJRT_TopologyDescription_Create = topology_create,
        .PJRT_TopologyDescription_Destroy = topology_destroy,
        .PJRT_TopologyDescription_PlatformName = topology_name,
        .PJRT_TopologyDescription_PlatformVersion = topology_version,
        .PJRT_TopologyDescription_GetDeviceDescriptions = topology_devices,
        .PJRT_Compile = compile_for,
        .PJRT_Executable_SizeOfGeneratedCodeInBytes = code_size,
    };
#ifdef STUB_NO_TABLE
    (void)api;
    return NULL;
#else
    return &api;
#endif
}
