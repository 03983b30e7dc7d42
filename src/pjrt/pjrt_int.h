/* The PJRT room's inside: a plugin, its client, and what lives on its device. */
#ifndef HEADRACE_PJRT_PJRT_INT_H
#define HEADRACE_PJRT_PJRT_INT_H

#include <pjrt_c_api.h>

#include "backend/backend.h"
#include "pjrt/cache.h"
#include "pjrt/hlo.h"
#include "pjrt/pjrt.h"
#include "pjrt/workers.h"

/* A plugin older than the header ends its table early: ask before a late member is called. */
#define HR_PJRT_HAS(api, member)                                                                   \
    ((api)->struct_size >= offsetof(PJRT_Api, member) + sizeof((api)->member) && (api)->member)

/* The alignment at which plugins copy, or take memory as it is, without a detour. */
enum { HR_PJRT_ALIGNMENT = 64 };

/* A plugin's count of bytes. Not every plugin counts, and some say so by a negative number. */
static inline size_t hr_pjrt_bytes(int64_t n)
{
    return n > 0 ? (size_t)n : 0;
}

/* One part of a weight on the devices, shared by all programs. */
typedef struct hr_pjrt_weight {
    const hr_weight *weight; /* borrowed from the model */
    int part;
    PJRT_Buffer **device; /* [devices], owned; each has its own slice, or the whole */
    struct {
        void *host;       /* owned; NULL = freed, or the first device's */
        PJRT_Event *held; /* owned; ready when the plugin has done with the memory */
    } * lent;             /* owned [devices] */
} hr_pjrt_weight;

/* An execute that nobody has awaited yet: what hr_event.pending points to. */
typedef struct hr_pjrt_flight {
    PJRT_Event **events; /* [devices], in hr_pjrt.events; owned ones */
    bool busy;
    uint64_t serial; /* of the execute */
} hr_pjrt_flight;

enum { HR_PJRT_FLIGHTS = 8, HR_PJRT_FAILURES = 8, HR_PJRT_MOST_DEVICES = 127 };

typedef struct hr_pjrt {
    hr_backend base;
    hr_pjrt_options options; /* its strings are borrowed */
    const PJRT_Api *api;
    PJRT_Client *client;        /* owned */
    PJRT_Device *const *device; /* [devices]: the first addressable ones; the client's array */
    size_t devices;             /* replicas of each program */
    hr_hlo_options hlo;         /* how programs are written for it */
    bool storage_chosen;        /* hlo.int4 says what this plugin takes */
    char platform[64], version[192];
    hr_pjrt_workers workers;
    hr_pjrt_cache cache; /* opened by the first compile */
    bool cache_opened;
    hr_pjrt_weight *weights; /* owned */
    size_t n_weights, weights_capacity;
    size_t weight_bytes;
    uint64_t serial;                             /* of the newest execute */
    hr_pjrt_flight flights[HR_PJRT_FLIGHTS + 1]; /* the last one's work is awaited at once */
    PJRT_Event **events;                         /* owned; of all flights */
    /* Serials of executes that failed late, a ring. A buffer that one of these wrote is lost; one
     * that has left the ring still has the plugin's own error in it. */
    uint64_t failed[HR_PJRT_FAILURES];
    size_t n_failed;
} hr_pjrt;

struct hr_buffer {
    hr_pjrt *owner; /* borrowed */
    hr_tensor_desc desc;
    size_t bytes;
    uint64_t writer; /* serial of the execute that made `device`; 0 = a put */
    void *host;      /* owned; `bytes` of bounce memory, made at the first partial copy */
    /* [2 × devices], owned: one on each device, NULL = lost with a failed execute; then those that
     * a put is making. Programs may leave something else on each; a get reads the first one's. */
    PJRT_Buffer *device[];
};

struct hr_program {
    hr_pjrt *owner;                /* borrowed */
    hr_hlo_program hlo;            /* owned; its text is dropped after compiling */
    PJRT_LoadedExecutable *loaded; /* owned */
    PJRT_Buffer **arguments;       /* owned array [devices,arguments]; inputs set by each execute,
                                      weights by compile */
    PJRT_Buffer **results;         /* owned array [devices,outputs] */
    PJRT_Buffer ***lists;          /* owned array [2 × devices]: rows of arguments, of results */
    uintptr_t *at;                 /* owned array like results; where donated inputs lay */
    bool donation_seen;            /* in-place update has been looked at */
    hr_program_info info;
    hr_pjrt_job job;  /* its compile; what follows is the worker's until it is awaited */
    hr_status status; /* of the compile */
    char message[HR_MESSAGE_MAX]; /* with status */
};

/* The plugin's error as a status, its message kept; consumes `e`. NULL is HR_OK. */
HR_MUST_USE hr_status hr_pjrt_error(const PJRT_Api *api, PJRT_Error *e, const char *what);
/* For a call whose failure changes nothing; consumes `e`. */
void hr_pjrt_ignore(const PJRT_Api *api, PJRT_Error *e);
/* Waits for an event and destroys it. NULL is finished work. */
HR_MUST_USE hr_status hr_pjrt_await(const PJRT_Api *api, PJRT_Event *e, const char *what);
/* A plugin's text, cut to size and clean enough for a log line and a JSON string. */
void hr_pjrt_keep_text(char *to, size_t size, const char *from, size_t n);
HR_MUST_USE hr_status hr_pjrt_device_text(const PJRT_Api *api, PJRT_DeviceDescription *d, char *to,
                                          size_t size);
HR_MUST_USE hr_status hr_pjrt_device_description(const PJRT_Api *api, PJRT_Device *device,
                                                 PJRT_DeviceDescription **out);
/* What the plugin says of the device's memory. */
bool hr_pjrt_memory(hr_backend *b, hr_device_memory *out);
/* Its id, process, kind and attributes (coordinates, core); no line end. */
HR_MUST_USE hr_status hr_pjrt_describe_device(const PJRT_Api *api, PJRT_DeviceDescription *d,
                                              hr_buf *out);
/* Opens, checks and initialises a plugin. It stays open for the life of the process. */
HR_MUST_USE hr_status hr_pjrt_plugin_open(const char *path, const PJRT_Api **out);

/* Host memory to a new buffer on one of the devices; `host` is free for use when this returns. */
HR_MUST_USE hr_status hr_pjrt_upload(hr_pjrt *b, size_t device, const void *host,
                                     const hr_hlo_shape *shape, PJRT_Buffer **out);
/* The same; without a copy where the plugin can, and `host` is its own until *held is ready. Both
 * results are the caller's whatever is returned. */
HR_MUST_USE hr_status hr_pjrt_lend(hr_pjrt *b, size_t device, const void *host,
                                   const hr_hlo_shape *shape, bool zero_copy, PJRT_Buffer **out,
                                   PJRT_Event **held);
void hr_pjrt_buffer_free(hr_pjrt *b, PJRT_Buffer *x); /* NULL is fine */
/* The buffers of an argument that is a weight's part, one on each device; read and uploaded the
 * first time. */
HR_MUST_USE hr_status hr_pjrt_weight_get(hr_pjrt *b, const hr_hlo_argument *a,
                                         PJRT_Buffer *const **out);
/* Frees lent memory that has come back. */
HR_MUST_USE hr_status hr_pjrt_weights_settle(hr_pjrt *b);
void hr_pjrt_weights_cut(hr_pjrt *b, size_t n); /* drops all but the first n */
void hr_pjrt_weights_deinit(hr_pjrt *b);
/* Before the first program with 4-bit weights: whether their numbers are packed on the device. */
void hr_pjrt_choose_storage(hr_pjrt *b, const hr_graph *g);
/* Whether what the buffer held went with a failed execute. */
bool hr_pjrt_lost(const hr_buffer *x);

/* CompileOptionsProto { executable_build_options { num_replicas: devices num_partitions: 1 } }. Up
 * to HR_PJRT_MOST_DEVICES the number is one byte. */
enum { HR_PJRT_OPTION_BYTES = 6 };
void hr_pjrt_compile_options(size_t devices, char to[HR_PJRT_OPTION_BYTES]);
/* load.c: a program's text to what the device runs, from the cache or by the plugin. Any thread. */
HR_MUST_USE hr_status hr_pjrt_load(hr_program *p);
void hr_pjrt_unload(hr_program *p);
void hr_pjrt_executable_free(const PJRT_Api *api, PJRT_Executable *x); /* NULL is fine */
/* identity.c: whatever decides whether a compiled program runs here, as text. */
HR_MUST_USE hr_status hr_pjrt_identity(const hr_pjrt *b, hr_buf *out);

hr_status hr_pjrt_buffer_create(hr_backend *b, const hr_tensor_desc *d, hr_buffer **out);
void hr_pjrt_buffer_destroy(hr_buffer *x);
hr_status hr_pjrt_buffer_put(hr_buffer *x, const void *host, size_t bytes);
hr_status hr_pjrt_buffer_get(hr_buffer *x, void *host, size_t bytes);
/* On every device; OK where the plugin does not say. */
hr_status hr_pjrt_buffer_verify(hr_buffer *x);

/* compile.c: starts a compile, and waits for one. */
hr_status hr_pjrt_compile(hr_backend *b, const hr_graph *g, hr_program **out);
hr_status hr_pjrt_program_await(hr_program *p);
void hr_pjrt_program_destroy(hr_program *p);
void hr_pjrt_program_info(const hr_program *p, hr_program_info *out);
hr_status hr_pjrt_execute(hr_program *p, const hr_execute_args *a, hr_event *done);
hr_status hr_pjrt_event_await(hr_event *e);
void hr_pjrt_flights_end(hr_pjrt *b); /* awaits what a failed start may leave */

#endif
