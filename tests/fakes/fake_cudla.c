/* A library with the C interface of cuDLA, for tests: it plays two cores of a DLA on the CPU.
 *
 * A loadable is text: "loadable", then a line for each tensor: side, name, n c h w, bytes, type,
 * format. A task copies its first input to each output of the same kind. FAKE_CUDLA_FAIL=CALL:STATUS makes a call
 * return a status. fake_cudla_counts tells what was not released.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS, INVALID_PARAM, OUT_OF_RESOURCES, INVALID_ADDRESS = 4, INVALID_DEVICE = 8,
       INVALID_ATTRIBUTE = 9, MEMORY_REGISTERED = 11, INVALID_MODULE = 12, UNSUPPORTED = 13 };

typedef struct {
    char name[81];
    uint64_t size, n, c, h, w;
    uint8_t format, type, category, pixel_format, pixel_mapping;
    uint32_t stride[8];
} tensor_t;

typedef union {
    uint32_t number;
    tensor_t *descriptors;
} attribute_t;

typedef struct {
    int inputs, outputs;
    tensor_t tensors[2][8];
} module_t;

typedef struct {
    uint64_t core;
    module_t *module;
} device_t;

typedef struct {
    module_t *module;
    uint64_t *const *outputs;
    uint32_t num_outputs, num_inputs;
    const uint64_t *const *inputs;
    const void *wait_events;
    void *signal_events;
} task_t;

/* A registered pointer is not the memory itself: it names a row of this table. */
static struct { void *memory; size_t size; } registered[64];
static int devices, modules, submitted;

static int status_of(const char *call) {
    const char *asked = getenv("FAKE_CUDLA_FAIL");
    size_t length = strlen(call);
    if (asked == NULL || strncmp(asked, call, length) != 0 || asked[length] != ':') return SUCCESS;
    return (int)strtol(asked + length + 1, NULL, 0);
}
#define MAY_FAIL(call) do { int status = status_of(call); if (status) return status; } while (0)

int fake_cudla_counts(int *found) {
    int memory = 0;
    for (int at = 0; at < 64; at++) memory += registered[at].memory != NULL;
    found[0] = devices, found[1] = modules, found[2] = memory, found[3] = submitted;
    return (int)sizeof(tensor_t);
}

int cudlaGetVersion(uint64_t *version) { *version = 1002001; return SUCCESS; }

int cudlaDeviceGetCount(uint64_t *count) { *count = 2; return SUCCESS; }

int cudlaCreateDevice(uint64_t core, device_t **made, uint32_t flags) {
    MAY_FAIL("cudlaCreateDevice");
    if (core > 1 || flags != 0) return INVALID_PARAM;
    *made = calloc(1, sizeof(device_t));
    (*made)->core = core;
    devices++;
    return SUCCESS;
}

int cudlaDestroyDevice(device_t *device) {
    if (device == NULL) return INVALID_DEVICE;
    free(device);
    devices--;
    return SUCCESS;
}

int cudlaModuleLoadFromMemory(device_t *device, const uint8_t *content, size_t size,
                              module_t **made, uint32_t flags) {
    MAY_FAIL("cudlaModuleLoadFromMemory");
    if (device->module != NULL) return UNSUPPORTED; /* one loadable per device */
    if (size < 9 || memcmp(content, "loadable\n", 9) != 0 || flags != 0) return INVALID_MODULE;
    module_t *module = calloc(1, sizeof(module_t));
    char *text = strndup((const char *)content, size), *rest = NULL;
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        char side[8], name[81];
        unsigned long v[7];
        if (sscanf(line, "%7s %80s %lu %lu %lu %lu %lu %lu %lu", side, name, v, v + 1, v + 2,
                   v + 3, v + 4, v + 5, v + 6) != 9) continue;
        int is_out = strcmp(side, "out") == 0;
        tensor_t *made_one = &module->tensors[is_out][is_out ? module->outputs++ : module->inputs++];
        strcpy(made_one->name, name);
        made_one->n = v[0], made_one->c = v[1], made_one->h = v[2], made_one->w = v[3];
        made_one->size = v[4], made_one->type = (uint8_t)v[5], made_one->format = (uint8_t)v[6];
        made_one->stride[7] = 77; /* the last field, so that its place is tested too */
    }
    free(text);
    *made = device->module = module;
    modules++;
    return SUCCESS;
}

int cudlaModuleUnload(module_t *module, uint32_t flags) {
    if (module == NULL || flags != 0) return INVALID_MODULE;
    free(module);
    modules--;
    return SUCCESS;
}

int cudlaModuleGetAttributes(module_t *module, int kind, attribute_t *attribute) {
    MAY_FAIL("cudlaModuleGetAttributes");
    int counts[2] = {module->inputs, module->outputs};
    if (kind < 0 || kind > 3) return INVALID_ATTRIBUTE;
    if (kind < 2) attribute->number = (uint32_t)counts[kind];
    else memcpy(attribute->descriptors, module->tensors[kind - 2],
                sizeof(tensor_t) * (size_t)counts[kind - 2]);
    return SUCCESS;
}

int cudlaMemRegister(device_t *device, const uint64_t *memory, size_t size, uint64_t **made,
                     uint32_t flags) {
    MAY_FAIL("cudlaMemRegister");
    if (device == NULL || memory == NULL || flags != 0) return INVALID_PARAM;
    for (int at = 0; at < 64; at++) if (registered[at].memory == memory) return MEMORY_REGISTERED;
    for (int at = 0; at < 64; at++) if (registered[at].memory == NULL) {
        registered[at].memory = (void *)memory;
        registered[at].size = size;
        *made = (uint64_t *)(uintptr_t)(0x1000 + at);
        return SUCCESS;
    }
    return OUT_OF_RESOURCES;
}

static int place_of(const uint64_t *pointer) {
    uintptr_t at = (uintptr_t)pointer - 0x1000;
    return at < 64 && registered[at].memory != NULL ? (int)at : -1;
}

int cudlaMemUnregister(device_t *device, const uint64_t *pointer) {
    int at = place_of(pointer);
    if (device == NULL || at < 0) return INVALID_ADDRESS;
    registered[at].memory = NULL;
    return SUCCESS;
}

/* Copy row by row, and spoil the padding behind each: it belongs to no element. */
static void copy(const tensor_t *in, const char *from, const tensor_t *out, char *to) {
    uint64_t rows = in->n * in->c * in->h, width = in->type == 4 ? 1 : 2;
    uint64_t pitches[2] = {in->size / rows, out->size / (out->n * out->c * out->h)};
    memset(to, 0x7f, out->size);
    if (in->h != out->h || in->w != out->w || in->type != out->type) return;
    for (uint64_t row = 0; row < rows; row++)
        memcpy(to + row * pitches[1], from + row * pitches[0], in->w * width);
}

int cudlaSubmitTask(device_t *device, const task_t *task, uint32_t count, void *stream,
                    uint32_t flags) {
    MAY_FAIL("cudlaSubmitTask");
    module_t *module = device->module;
    if (count != 1 || stream == NULL || flags != 0 || task->module != module) return INVALID_PARAM;
    if (task->wait_events != NULL || task->signal_events != NULL) return UNSUPPORTED;
    if ((int)task->num_inputs != module->inputs || (int)task->num_outputs != module->outputs)
        return INVALID_PARAM;
    int source = place_of(task->inputs[0]);
    for (uint32_t at = 0; at < task->num_outputs; at++) {
        int to = place_of(task->outputs[at]);
        if (source < 0 || to < 0) return INVALID_ADDRESS;
        copy(&module->tensors[0][0], registered[source].memory, &module->tensors[1][at],
             registered[to].memory);
    }
    submitted++;
    return SUCCESS;
}

int cudlaGetLastError(device_t *device) {
    MAY_FAIL("cudlaGetLastError");
    return device == NULL ? INVALID_DEVICE : SUCCESS;
}
