/* A libnvidia-ml.so.1 for machines without a GPU: the part of NVML that dtagent calls.
 *
 * What it answers is read at each call from the file that DTTUI_NVML_STUB names, one key=value a line.
 * A key may end in .N and then holds for GPU N alone.
 *
 *   gpus=8                          how many there are
 *   driver=550.54.15, name=..., uuid=...
 *   memory_total_mib, memory_used_mib, memory_reserved_mib, utilization, temperature,
 *   power_mw, power_limit_mw, sm_clock, throttle (bits), ecc, processes=PID:MIB,PID:MIB
 *   lost.1=1                        every question about GPU 1 is answered GPU_IS_LOST
 *   fail.nvmlFunction=3             that function returns this code; fail.nvmlFunction.1 for GPU 1
 *   hang=nvmlFunction               that function does not return for as long as the file says so
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef int nvmlReturn_t;
typedef void *nvmlDevice_t;

enum { SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, INSUFFICIENT_SIZE = 7, GPU_IS_LOST = 15 };

typedef struct { unsigned gpu, memory; } nvmlUtilization_t;
typedef struct { unsigned long long total, free, used; } nvmlMemory_t;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } nvmlMemory_v2_t;
typedef struct { unsigned version, sensor; int temperature; } nvmlTemperature_t;
typedef struct { unsigned pid; unsigned long long used; unsigned gpu_instance, compute_instance; } nvmlProcessInfo_t;

#define MIB (1024ULL * 1024ULL)
#define NOT_AVAILABLE (~0ULL)

static int initialised;

static int find(const char *key, char *value, size_t size)
{
    const char *path = getenv("DTTUI_NVML_STUB");
    FILE *file = path ? fopen(path, "r") : NULL;
    char line[1024];
    size_t length = strlen(key);
    int found = 0;

    while (file && !found && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = '\0';
        if (strncmp(line, key, length) == 0 && line[length] == '=') {
            snprintf(value, size, "%s", line + length + 1);
            found = 1;
        }
    }
    if (file)
        fclose(file);
    return found;
}

/* Looks for key.GPU and then for key; gpu is -1 where the question is not about one GPU. */
static int setting(const char *key, int gpu, char *value, size_t size)
{
    char own[256];

    snprintf(own, sizeof own, "%s.%d", key, gpu);
    return (gpu >= 0 && find(own, value, size)) || find(key, value, size);
}

static unsigned long long number(const char *key, int gpu, unsigned long long otherwise)
{
    char value[64];

    return setting(key, gpu, value, sizeof value) ? strtoull(value, NULL, 0) : otherwise;
}

static int index_of(nvmlDevice_t device)
{
    return (int)(size_t)device - 1;
}

/* What every function does first: hang, fail or be lost as the file says. */
static nvmlReturn_t enter(const char *function, int gpu)
{
    char key[256], value[256];
    int code;

    while (setting("hang", gpu, value, sizeof value) && strcmp(value, function) == 0)
        usleep(5000);
    if (!initialised && strncmp(function, "nvmlInit", 8) != 0)
        return UNINITIALIZED;
    snprintf(key, sizeof key, "fail.%s", function);
    code = (int)number(key, gpu, SUCCESS);
    if (code == SUCCESS && gpu >= 0 && number("lost", gpu, 0))
        code = GPU_IS_LOST;
    return code;
}

#define ENTER(gpu)                                   \
    do {                                             \
        nvmlReturn_t code_ = enter(__func__, (gpu)); \
        if (code_ != SUCCESS)                        \
            return code_;                            \
    } while (0)

static nvmlReturn_t text(const char *key, int gpu, const char *otherwise, char *out, unsigned size)
{
    char value[256];

    snprintf(out, size, "%s", setting(key, gpu, value, sizeof value) ? value : otherwise);
    return SUCCESS;
}

nvmlReturn_t nvmlInitWithFlags(unsigned flags)
{
    (void)flags;
    ENTER(-1);
    initialised = 1;
    return SUCCESS;
}

nvmlReturn_t nvmlInit_v2(void)
{
    ENTER(-1);
    initialised = 1;
    return SUCCESS;
}

nvmlReturn_t nvmlShutdown(void)
{
    ENTER(-1);
    initialised = 0;
    return SUCCESS;
}

const char *nvmlErrorString(nvmlReturn_t code)
{
    static char words[64];

    snprintf(words, sizeof words, "stub error %d", code);
    return words;
}

nvmlReturn_t nvmlSystemGetDriverVersion(char *out, unsigned size)
{
    ENTER(-1);
    return text("driver", -1, "550.54.15", out, size);
}

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *count)
{
    ENTER(-1);
    *count = (unsigned)number("gpus", -1, 0);
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *device)
{
    ENTER((int)index);
    if (index >= number("gpus", -1, 0))
        return INVALID_ARGUMENT;
    *device = (nvmlDevice_t)(size_t)(index + 1);
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *out, unsigned size)
{
    ENTER(index_of(device));
    return text("name", index_of(device), "NVIDIA A100-SXM4-80GB", out, size);
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *out, unsigned size)
{
    char uuid[64];

    ENTER(index_of(device));
    snprintf(uuid, sizeof uuid, "GPU-00000000-0000-0000-0000-%012d", index_of(device));
    return text("uuid", index_of(device), uuid, out, size);
}

static unsigned long long total_bytes(int gpu) { return number("memory_total_mib", gpu, 81920) * MIB; }
static unsigned long long used_bytes(int gpu) { return number("memory_used_mib", gpu, 1024) * MIB; }
static unsigned long long reserved_bytes(int gpu) { return number("memory_reserved_mib", gpu, 512) * MIB; }

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
    int gpu = index_of(device);

    ENTER(gpu);
    memory->total = total_bytes(gpu);
    memory->used = used_bytes(gpu) + reserved_bytes(gpu);
    memory->free = memory->total - memory->used;
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory)
{
    int gpu = index_of(device);

    ENTER(gpu);
    memory->total = total_bytes(gpu);
    memory->reserved = reserved_bytes(gpu);
    memory->used = used_bytes(gpu);
    memory->free = memory->total - memory->used - memory->reserved;
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *rates)
{
    ENTER(index_of(device));
    rates->gpu = (unsigned)number("utilization", index_of(device), 0);
    rates->memory = 0;
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, unsigned sensor, unsigned *celsius)
{
    (void)sensor;
    ENTER(index_of(device));
    *celsius = (unsigned)number("temperature", index_of(device), 40);
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTemperatureV(nvmlDevice_t device, nvmlTemperature_t *reading)
{
    ENTER(index_of(device));
    reading->temperature = (int)number("temperature", index_of(device), 40);
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned *milliwatts)
{
    ENTER(index_of(device));
    *milliwatts = (unsigned)number("power_mw", index_of(device), 65000);
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetEnforcedPowerLimit(nvmlDevice_t device, unsigned *milliwatts)
{
    ENTER(index_of(device));
    *milliwatts = (unsigned)number("power_limit_mw", index_of(device), 400000);
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, unsigned type, unsigned *mhz)
{
    (void)type;
    ENTER(index_of(device));
    *mhz = (unsigned)number("sm_clock", index_of(device), 1410);
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCurrentClocksEventReasons(nvmlDevice_t device, unsigned long long *bits)
{
    ENTER(index_of(device));
    *bits = number("throttle", index_of(device), 0);
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t device, unsigned long long *bits)
{
    ENTER(index_of(device));
    *bits = number("throttle", index_of(device), 0);
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, unsigned error, unsigned counter, unsigned long long *count)
{
    (void)error;
    (void)counter;
    ENTER(index_of(device));
    *count = number("ecc", index_of(device), 0);
    return SUCCESS;
}

/* processes=PID:MIB,PID:MIB; a PID without MIB has a size that the driver does not tell. */
static nvmlReturn_t processes(int gpu, unsigned *count, nvmlProcessInfo_t *out)
{
    char value[256] = "";
    unsigned room = *count;
    char *rest = value;

    setting("processes", gpu, value, sizeof value);
    for (*count = 0; *rest; ++*count) {
        unsigned pid = (unsigned)strtoul(rest, &rest, 10);
        unsigned long long used = *rest == ':' ? strtoull(rest + 1, &rest, 10) * MIB : NOT_AVAILABLE;

        if (*count < room && out)
            out[*count] = (nvmlProcessInfo_t){pid, used, ~0U, ~0U};
        if (*rest == ',')
            ++rest;
    }
    return *count > room ? INSUFFICIENT_SIZE : SUCCESS;
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t device, unsigned *count, nvmlProcessInfo_t *out)
{
    ENTER(index_of(device));
    return processes(index_of(device), count, out);
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned *count, nvmlProcessInfo_t *out)
{
    ENTER(index_of(device));
    return processes(index_of(device), count, out);
}
