/* A stand-in for libnvidia-ml.so.1: one GPU whose power is read from a file of a world.
 *
 * ENERGY_TRUTH_SERIES names the file (tools/energy_truth/files.py writes it).
 * ENERGY_TRUTH_ORIGIN names a file that has the CLOCK_MONOTONIC time, in nanoseconds, at which the
 * world begins. Until it is there the values of the world's first line are returned.
 * ENERGY_TRUTH_BEGIN is the time in the world, in seconds, at which its work begins. There the world
 * stands still at idle power, with a counter that goes on, until the file ENERGY_TRUTH_RELEASE is
 * there. It has the time at which the work begins.
 *
 * Build: cc -O2 -shared -fPIC -Wl,-soname,libnvidia-ml.so.1 -o libnvidia-ml.so.1 nvml.c
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SUCCESS = 0, UNINITIALIZED = 1, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6 };
enum { POWER_AVERAGE = 185, POWER_INSTANT = 186, UNSIGNED = 1 };

typedef struct { long long us, usage, instant, average, energy; } Row;

static Row *rows;
static size_t count;
static char name[96];
static int architecture, has_counter, has_instant, has_average, users;
static long long origin_ns, release_ns, hold_us;

static int load(void) {
    const char *path = getenv("ENERGY_TRUTH_SERIES");
    char line[256], word[32];
    FILE *file = path ? fopen(path, "r") : NULL;
    int value;
    if (!file) return 0;
    while (fgets(line, sizeof line, file) && strncmp(line, "microseconds", 12)) {
        if (!strncmp(line, "name ", 5)) {
            line[strcspn(line, "\n")] = 0;
            snprintf(name, sizeof name, "%.90s", line + 5);
        } else if (sscanf(line, "%31s %d", word, &value) == 2) {
            if (!strcmp(word, "architecture")) architecture = value;
            if (!strcmp(word, "counter")) has_counter = value;
            if (!strcmp(word, "instant")) has_instant = value;
            if (!strcmp(word, "average")) has_average = value;
        }
    }
    while (fgets(line, sizeof line, file)) {
        Row row;
        if (sscanf(line, "%lld %lld %lld %lld %lld", &row.us, &row.usage, &row.instant,
                   &row.average, &row.energy) != 5) break;
        if (count % 1024 == 0) rows = realloc(rows, (count + 1024) * sizeof *rows);
        rows[count++] = row;
    }
    fclose(file);
    hold_us = (long long)(atof(getenv("ENERGY_TRUTH_BEGIN")) * 1e6);
    return count > 2;
}

static void read_time(const char *variable, long long *ns) {
    const char *path = getenv(variable);
    FILE *file = *ns || !path ? NULL : fopen(path, "r");
    if (!file) return;
    if (fscanf(file, "%lld", ns) != 1) *ns = 0;
    fclose(file);
}

static Row at(long long us) {
    size_t low = 0, high = count;
    while (high - low > 1) {
        size_t middle = (low + high) / 2;
        if (rows[middle].us <= us) low = middle; else high = middle;
    }
    return rows[low];
}

static Row now(void) {
    struct timespec time;
    long long ns, us, held_us = 0, update_us = rows[2].us - rows[1].us;
    Row row, idle = at(hold_us);
    read_time("ENERGY_TRUTH_ORIGIN", &origin_ns);
    if (!origin_ns) return rows[0];
    clock_gettime(CLOCK_MONOTONIC, &time);
    ns = time.tv_sec * 1000000000LL + time.tv_nsec;
    us = (ns - origin_ns) / 1000;
    if (us > hold_us) {
        read_time("ENERGY_TRUTH_RELEASE", &release_ns);
        held_us = us - hold_us;
        if (release_ns && ns >= release_ns) {
            held_us = (release_ns - origin_ns) / 1000 - hold_us;
        } else {
            held_us -= held_us % update_us;
        }
    }
    row = at(us - held_us > hold_us && !release_ns ? hold_us : us - held_us);
    row.energy += idle.instant * held_us / 1000000;
    return row;
}

static int text(char *to, unsigned length, const char *from) {
    snprintf(to, length, "%s", from);
    return SUCCESS;
}

#define READY if (!users) return UNINITIALIZED
static int handle;

int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    if (!count && !load()) return NOT_FOUND;
    users++;
    return SUCCESS;
}
int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlShutdown(void) { READY; users--; return SUCCESS; }
const char *nvmlErrorString(int code) {
    switch (code) {
    case SUCCESS: return "Success";
    case UNINITIALIZED: return "Uninitialized";
    case INVALID: return "Invalid Argument";
    case NOT_SUPPORTED: return "Not Supported";
    default: return "Not Found";
    }
}
int nvmlSystemGetDriverVersion(char *to, unsigned length) { return text(to, length, "550.54.15"); }
int nvmlSystemGetNVMLVersion(char *to, unsigned length) { return text(to, length, "12.550.54.15"); }
int nvmlDeviceGetCount_v2(unsigned *devices) { READY; *devices = 1; return SUCCESS; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
    READY;
    if (index) return INVALID;
    *device = &handle;
    return SUCCESS;
}
static const char uuid[] = "GPU-00000000-1234-5678-9abc-def012345678";
int nvmlDeviceGetHandleByUUID(const char *wanted, void **device) {
    READY;
    if (strcmp(wanted, uuid)) return NOT_FOUND;
    *device = &handle;
    return SUCCESS;
}
int nvmlDeviceGetName(void *device, char *to, unsigned length) {
    (void)device; READY; return text(to, length, name);
}
int nvmlDeviceGetUUID(void *device, char *to, unsigned length) {
    (void)device; READY; return text(to, length, uuid);
}
int nvmlDeviceGetIndex(void *device, unsigned *index) {
    (void)device; READY; *index = 0; return SUCCESS;
}
int nvmlDeviceGetArchitecture(void *device, unsigned *value) {
    (void)device; READY; *value = architecture; return SUCCESS;
}
int nvmlDeviceGetPowerUsage(void *device, unsigned *milliwatts) {
    (void)device; READY; *milliwatts = now().usage; return SUCCESS;
}
int nvmlDeviceGetTotalEnergyConsumption(void *device, unsigned long long *millijoules) {
    (void)device; READY;
    if (!has_counter) return NOT_SUPPORTED;
    *millijoules = now().energy;
    return SUCCESS;
}
int nvmlDeviceGetEnforcedPowerLimit(void *device, unsigned *milliwatts) {
    (void)device; READY; *milliwatts = 700000; return SUCCESS;
}
int nvmlDeviceGetPowerManagementLimit(void *device, unsigned *milliwatts) {
    (void)device; READY; *milliwatts = 700000; return SUCCESS;
}

/* As nvmlFieldValue_t of nvml.h. */
typedef struct {
    unsigned field, scope;
    long long timestamp, latency;
    unsigned type, result;
    union { unsigned u; unsigned long long ull; double d; } value;
} FieldValue;

int nvmlDeviceGetFieldValues(void *device, int number, FieldValue *values) {
    (void)device; READY;
    for (int i = 0; i < number; i++) {
        values[i].result = NOT_SUPPORTED;
        /* Scope 0 is the GPU; that of its memory and that of a module are not there. */
        if (values[i].scope) continue;
        if (values[i].field == POWER_INSTANT && has_instant) {
            values[i].value.u = now().instant;
        } else if (values[i].field == POWER_AVERAGE && has_average) {
            values[i].value.u = now().average;
        } else {
            continue;
        }
        values[i].type = UNSIGNED;
        values[i].result = SUCCESS;
    }
    return SUCCESS;
}

typedef struct { unsigned gpu, memory; } Utilization;
int nvmlDeviceGetUtilizationRates(void *device, Utilization *rates) {
    (void)device; READY; rates->gpu = 90; rates->memory = 40; return SUCCESS;
}
typedef struct { unsigned long long total, available, used; } Memory;
int nvmlDeviceGetMemoryInfo(void *device, Memory *memory) {
    (void)device; READY;
    memory->total = 80ULL << 30; memory->used = 20ULL << 30; memory->available = 60ULL << 30;
    return SUCCESS;
}
int nvmlDeviceGetTemperature(void *device, int sensor, unsigned *celsius) {
    (void)device; (void)sensor; READY; *celsius = 55; return SUCCESS;
}
int nvmlDeviceGetClockInfo(void *device, int type, unsigned *megahertz) {
    (void)device; (void)type; READY; *megahertz = 1500; return SUCCESS;
}
int nvmlDeviceGetComputeMode(void *device, int *mode) {
    (void)device; READY; *mode = 0; return SUCCESS;
}
int nvmlDeviceGetPerformanceState(void *device, int *state) {
    (void)device; READY; *state = 0; return SUCCESS;
}
int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *number, void *processes) {
    (void)device; (void)processes; READY; *number = 0; return SUCCESS;
}
int nvmlDeviceGetGraphicsRunningProcesses_v3(void *device, unsigned *number, void *processes) {
    (void)device; (void)processes; READY; *number = 0; return SUCCESS;
}
int nvmlDeviceGetC2cModeInfoV(void *device, void *mode) {
    (void)device; (void)mode; READY; return NOT_SUPPORTED;
}
