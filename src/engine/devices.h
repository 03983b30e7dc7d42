/* Devices: what --device can name, and what there is to name. A door for the command. */
#ifndef HEADRACE_ENGINE_DEVICES_H
#define HEADRACE_ENGINE_DEVICES_H

#include "backend/backend.h"
#include "headrace/headrace.h"

typedef enum hr_device_kind { HR_DEVICE_CPU, HR_DEVICE_REF, HR_DEVICE_PJRT } hr_device_kind;

#define HR_DEVICE_PATH 4096

typedef struct hr_device {
    hr_device_kind kind;
    char plugin[HR_DEVICE_PATH]; /* PJRT: path of the shared object; else empty */
    const char *options;         /* PJRT: "key=value,…" or NULL; borrowed */
} hr_device;

/* "cpu" (NULL), "ref", "pjrt:PATH", "tpu" or "gpu" (an installed plugin for one that is here), or
 * "auto" (a TPU, else a GPU, else cpu), with its options; logs what was found. INVALID_ARGUMENT
 * names what there is, FAILED_PRECONDITION what this build lacks, NOT_FOUND and UNAVAILABLE what
 * this machine lacks. */
HR_MUST_USE hr_status hr_device_parse(const char *name, const char *options, hr_device *out);
/* FAILED_PRECONDITION: a build without PJRT refuses a flag and says how to get the room. */
hr_status hr_device_lacking(const char *flag, const char *value);
/* Its backend. `o` has the native backend's threads and instruction set; `weights_id` names the
 * weights of which it may keep the packed form (hr_engine_weights_id), empty for none. */
HR_MUST_USE hr_status hr_device_create(const hr_device *d, const headrace_options *o,
                                       hr_str weights_id, hr_backend **out);

typedef enum hr_plugin_kind { HR_PLUGIN_OTHER, HR_PLUGIN_TPU, HR_PLUGIN_GPU } hr_plugin_kind;
/* The first plugin for a TPU or GPU, of those that hr_devices_list lists, with something to drive:
 * looked for in /dev and /sys below `root` ("" = this machine), since a plugin that is opened
 * without may hang for minutes. */
HR_MUST_USE hr_status hr_plugin_find(hr_plugin_kind kind, const char *root,
                                     char path[HR_DEVICE_PATH], const char **what);

/* Text for `headrace devices`: what a device says of itself, a line each. */
HR_MUST_USE hr_status hr_device_describe(const hr_device *d, hr_buf *out);
/* A line for each device that --device could name here: the native ones, the plugins that
 * HEADRACE_PJRT_PLUGINS lists (separated by colons) and those that Python packages brought. Opens
 * none of them. */
HR_MUST_USE hr_status hr_devices_list(hr_buf *out);

#endif
