/* A libnvidia-ml.so.1 for machines without a GPU: the part of NVML that dtagent calls.
 *
 * What it answers is in the file that DTTUI_NVML_STUB names, one key=value a line, read again when it has changed.
 * A key may end in .N and then holds for GPU N alone. Each initialisation adds a byte to that file's name + ".inits".
 *
 *   gpus=8                          how many there are
 *   driver=550.54.15, name=..., uuid=...
 *   memory_total_mib, memory_used_mib, memory_reserved_mib, utilization, memory_utilization, temperature,
 *   power_mw, power_limit_mw, sm_clock, memory_clock, throttle (bits), ecc, ecc_corrected, processes=PID:MIB,PID:MIB
 *   remap_pending, remap_failed, pcie_generation, pcie_lanes, nvlinks, nvlinks_active, recovery (action)
 *   nvlink_sent_kib, nvlink_received_kib, pcie_sent_bytes, pcie_received_bytes     counters; absent: not supported
 *   fan=45                          the speed of the fan in percent; absent: not supported
 *   pcie_kib=5                      what nvmlDeviceGetPcieThroughput says of either direction
 *   mig=2                           MIG is on, with so many instances
 *   xid.1=79                        one such event waits; it is given out once for each change of the file
 *   lost.1=1                        every question about GPU 1 is answered GPU_IS_LOST
 *   fail.nvmlFunction=3             that function returns this code; fail.nvmlFunction.1 for GPU 1
 *   hang=nvmlFunction               that function does not return for as long as the file says so
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef int nvmlReturn_t;
typedef void *nvmlDevice_t;

enum {
    SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7,
    TIMEOUT = 10, GPU_IS_LOST = 15
};

typedef struct { unsigned gpu, memory; } nvmlUtilization_t;
typedef struct { unsigned long long total, free, used; } nvmlMemory_t;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } nvmlMemory_v2_t;
typedef struct { unsigned version, sensor; int temperature; } nvmlTemperature_t;
typedef struct { unsigned pid; unsigned long long used; unsigned gpu_instance, compute_instance; } nvmlProcessInfo_t;
typedef struct { unsigned field, scope; long long timestamp, latency; int type, code; unsigned long long value; } nvmlFieldValue_t;
typedef struct { nvmlDevice_t device; unsigned long long type, data; unsigned gpu_instance, compute_instance; } nvmlEventData_t;
typedef struct {
    char legacy_bus_id[16];
    unsigned domain, bus, device, pci_device, pci_subsystem;
    char bus_id[32];
} nvmlPciInfo_t;

#define MIB (1024ULL * 1024ULL)
#define NOT_AVAILABLE (~0ULL)

static int initialised;

#define MOST_SETTINGS 512

static struct { char key[512], value[512]; } settings[MOST_SETTINGS];
static int setting_count, may_misbehave;
static long long version = -1;
static pthread_mutex_t reading = PTHREAD_MUTEX_INITIALIZER;

/* Reads the file anew if it is another one, or was written, since. */
static void look(void)
{
    const char *path = getenv("DTTUI_NVML_STUB");
    struct stat now;
    FILE *file;
    char line[512];
    long long stamp;

    if (!path || stat(path, &now) != 0)
        return;
    stamp = (long long)now.st_mtim.tv_sec * 1000000000LL + now.st_mtim.tv_nsec + (long long)now.st_ino * 7919;
    if (stamp == version || !(file = fopen(path, "r")))
        return;
    version = stamp;
    for (setting_count = may_misbehave = 0; setting_count < MOST_SETTINGS && fgets(line, sizeof line, file);) {
        char *equals = strchr(line, '=');

        line[strcspn(line, "\n")] = '\0';
        may_misbehave |= strncmp(line, "hang", 4) == 0 || strncmp(line, "fail", 4) == 0 || strncmp(line, "lost", 4) == 0;
        if (equals) {
            *equals = '\0';
            snprintf(settings[setting_count].key, sizeof settings[0].key, "%s", line);
            snprintf(settings[setting_count++].value, sizeof settings[0].value, "%s", equals + 1);
        }
    }
    fclose(file);
}

static void refresh(void)
{
    pthread_mutex_lock(&reading);
    look();
    pthread_mutex_unlock(&reading);
}

static int find(const char *key, char *value, size_t size)
{
    int index, found = 0;

    pthread_mutex_lock(&reading);
    for (index = 0; index < setting_count && !found; ++index)
        if (strcmp(settings[index].key, key) == 0) {
            snprintf(value, size, "%s", settings[index].value);
            found = 1;
        }
    pthread_mutex_unlock(&reading);
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
    size_t number = (size_t)device;

    /* MIG instance I of GPU N is N + 1 + 1000 * (I + 1). */
    return (int)(number % 1000) - 1;
}

/* What every function does first: hang, fail or be lost as the file says. */
static nvmlReturn_t enter(const char *function, int gpu)
{
    char key[256], value[256];
    int code;

    refresh();
    while (may_misbehave && setting("hang", gpu, value, sizeof value) && strcmp(value, function) == 0) {
        usleep(5000);
        refresh();
    }
    if (!initialised && strncmp(function, "nvmlInit", 8) != 0)
        return UNINITIALIZED;
    if (!may_misbehave)
        return SUCCESS;
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

static nvmlReturn_t initialise(void)
{
    const char *path = getenv("DTTUI_NVML_STUB");
    char name[4096];
    FILE *file;

    snprintf(name, sizeof name, "%s.inits", path ? path : "/dev/null");
    if (path && (file = fopen(name, "a"))) {
        fputc('.', file);
        fclose(file);
    }
    initialised = 1;
    return SUCCESS;
}

nvmlReturn_t nvmlInitWithFlags(unsigned flags)
{
    (void)flags;
    ENTER(-1);
    return initialise();
}

nvmlReturn_t nvmlInit_v2(void)
{
    ENTER(-1);
    return initialise();
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
    size_t instance = (size_t)device / 1000;

    ENTER(index_of(device));
    if (instance) {
        snprintf(out, size, "MIG-0000000%d-0000-0000-0000-%012d", (int)instance - 1, index_of(device));
        return SUCCESS;
    }
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
    rates->memory = (unsigned)number("memory_utilization", index_of(device), 0);
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

nvmlReturn_t nvmlDeviceGetFanSpeed(nvmlDevice_t device, unsigned *percent)
{
    ENTER(index_of(device));
    long long speed = number("fan", index_of(device), -1);
    if (speed < 0)
        return NOT_SUPPORTED;
    *percent = (unsigned)speed;
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
    ENTER(index_of(device));
    *mhz = (unsigned)number(type == 2 ? "memory_clock" : "sm_clock", index_of(device), type == 2 ? 1593 : 1410);
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
    (void)counter;
    ENTER(index_of(device));
    *count = number(error ? "ecc" : "ecc_corrected", index_of(device), 0);
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

nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t device, unsigned *corrected, unsigned *uncorrected, unsigned *pending,
                                       unsigned *failed)
{
    ENTER(index_of(device));
    *corrected = *uncorrected = 0;
    *pending = (unsigned)number("remap_pending", index_of(device), 0);
    *failed = (unsigned)number("remap_failed", index_of(device), 0);
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetRetiredPagesPendingStatus(nvmlDevice_t device, unsigned *pending)
{
    ENTER(index_of(device));
    *pending = (unsigned)number("remap_pending", index_of(device), 0);
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCurrPcieLinkGeneration(nvmlDevice_t device, unsigned *generation)
{
    ENTER(index_of(device));
    *generation = (unsigned)number("pcie_generation", index_of(device), 4);
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCurrPcieLinkWidth(nvmlDevice_t device, unsigned *lanes)
{
    ENTER(index_of(device));
    *lanes = (unsigned)number("pcie_lanes", index_of(device), 16);
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPcieThroughput(nvmlDevice_t device, unsigned counter, unsigned *kib)
{
    (void)counter;
    ENTER(index_of(device));
    *kib = (unsigned)number("pcie_kib", index_of(device), 0);
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned link, unsigned *active)
{
    unsigned links = (unsigned)number("nvlinks", index_of(device), 0);

    ENTER(index_of(device));
    if (!links)
        return NOT_SUPPORTED;
    if (link >= links)
        return INVALID_ARGUMENT;
    *active = link < number("nvlinks_active", index_of(device), links);
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, nvmlFieldValue_t *values)
{
    static const struct { unsigned field; const char *key; } known[] = {
        {138, "nvlink_sent_kib"}, {139, "nvlink_received_kib"},
        {197, "pcie_sent_bytes"}, {198, "pcie_received_bytes"}, {230, "recovery"},
    };
    char value[64];
    int index;
    size_t each;

    ENTER(index_of(device));
    for (index = 0; index < count; ++index) {
        values[index].code = NOT_SUPPORTED;
        values[index].type = 3;
        for (each = 0; each < sizeof known / sizeof known[0]; ++each)
            if (values[index].field == known[each].field && setting(known[each].key, index_of(device), value, sizeof value)) {
                values[index].value = strtoull(value, NULL, 0);
                values[index].code = SUCCESS;
            }
    }
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned *current, unsigned *pending)
{
    ENTER(index_of(device));
    *current = *pending = number("mig", index_of(device), 0) > 0;
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned *count)
{
    ENTER(index_of(device));
    *count = 7;
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned index, nvmlDevice_t *instance)
{
    ENTER(index_of(device));
    if (index >= number("mig", index_of(device), 0))
        return NOT_FOUND;
    *instance = (nvmlDevice_t)((size_t)device + 1000 * ((size_t)index + 1));
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *info)
{
    ENTER(index_of(device));
    memset(info, 0, sizeof *info);
    info->bus = 0x10 + (unsigned)index_of(device);
    snprintf(info->bus_id, sizeof info->bus_id, "00000000:%02X:00.0", info->bus);
    snprintf(info->legacy_bus_id, sizeof info->legacy_bus_id, "0000:%02X:00.0", info->bus);
    return SUCCESS;
}

nvmlReturn_t nvmlEventSetCreate(void **set)
{
    ENTER(-1);
    *set = &initialised;
    return SUCCESS;
}

nvmlReturn_t nvmlEventSetFree(void *set)
{
    (void)set;
    ENTER(-1);
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long types, void *set)
{
    (void)types;
    (void)set;
    ENTER(index_of(device));
    return SUCCESS;
}

nvmlReturn_t nvmlEventSetWait_v2(void *set, nvmlEventData_t *event, unsigned timeout_ms)
{
    static long long given[64];
    int gpu, gpus = (int)number("gpus", -1, 0);

    (void)set;
    (void)timeout_ms;
    ENTER(-1);
    for (gpu = 0; gpu < gpus && gpu < 64; ++gpu) {
        unsigned long long xid = number("xid", gpu, 0);

        if (xid && given[gpu] != version) {
            given[gpu] = version;
            *event = (nvmlEventData_t){(nvmlDevice_t)(size_t)(gpu + 1), 8, xid, ~0U, ~0U};
            return SUCCESS;
        }
    }
    return TIMEOUT;
}
