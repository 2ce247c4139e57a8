/* The run time of models compiled by Mirlo: C99, on POSIX, Windows, and without a system. See mirlo.h. */
#if !defined(_GNU_SOURCE) && !defined(_WIN32)
#define _GNU_SOURCE
#endif
#if defined(_WIN32)
#define _CRT_RAND_S /* rand_s */
#define _CRT_SECURE_NO_WARNINGS
#endif
#include "mirlo.h"
#include "mirlo_call.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__unix__) || defined(__APPLE__)
#define MIRLO_POSIX 1
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#else
#define MIRLO_POSIX 0
#endif
#if defined(_WIN32)
#define MIRLO_WINDOWS 1
#define WIN32_LEAN_AND_MEAN
#include <windows.h>
#else
#define MIRLO_WINDOWS 0
#endif
#if defined(__GNUC__) || defined(__clang__)
#define MIRLO_GNU 1 /* assembly in C */
#else
#define MIRLO_GNU 0
#endif
#if defined(__x86_64__) && MIRLO_GNU
#include <cpuid.h>
#elif defined(_M_X64)
#include <intrin.h>
#endif
#if defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#include <sys/prctl.h>
#elif defined(__aarch64__) && defined(__APPLE__)
#include <sys/sysctl.h>
#elif defined(__riscv) && defined(__linux__)
#include <sys/auxv.h>
#endif

#define READABLE 64 /* bytes that can be read of a tensor without elements */
#define MOST_BYTES ((uint64_t)SIZE_MAX - 4096) /* that are taken at once: callers may pad and align them */
#define OWN_WORDS 2  /* before a call record: the address of the regions, and that of the context */
#define WEIGHTS_HEADER 64
static const char weights_magic[8] = {'M', 'I', 'R', 'L', 'O', 'W', 'T', '1'};

struct mirlo_model {
  const mirlo_code *code;
  mirlo_options options;
  void **params;
  mirlo_region *regions;      /* by packed function: what its driver is given */
  const void **region_weights; /* the weights of all regions */
  const unsigned char *weights;
  void *mapping;
  size_t mapped;
};

struct mirlo_context {
  const mirlo_model *model;
  int64_t *record; /* after `OWN_WORDS` */
  void **tensors;
  void **late; /* by output, what the call allocated */
  char *arena;
  size_t arena_bytes;
  mirlo_block *blocks;
  int failed;
  char nothing[READABLE + MIRLO_ALIGNMENT];
  char message[256];
};

static int describe(char *out, size_t bytes, int status, const char *format, ...) {
  if (out && bytes) {
    va_list rest;
    va_start(rest, format);
    vsnprintf(out, bytes, format, rest);
    va_end(rest);
  }
  return status;
}
#define FAIL(c, status, ...) return describe((c)->message, sizeof (c)->message, status, __VA_ARGS__)

/* Memory */

static void *take(const mirlo_options *options, uint64_t bytes) {
  size_t room = (size_t)bytes + MIRLO_ALIGNMENT + sizeof(void *);
  char *raw, *memory;
  if (bytes > MOST_BYTES) return NULL;
  raw = (char *)(options->allocate ? options->allocate(options->user, room) : malloc(room));
  if (!raw) return NULL;
  memory = raw + sizeof(void *);
  memory += (MIRLO_ALIGNMENT - (uintptr_t)memory % MIRLO_ALIGNMENT) % MIRLO_ALIGNMENT;
  memcpy(memory - sizeof(void *), &raw, sizeof raw);
  return memory;
}

static void give(const mirlo_options *options, void *memory) {
  char *raw;
  if (!memory) return;
  memcpy(&raw, (char *)memory - sizeof(void *), sizeof raw);
  if (options->release) {
    options->release(options->user, raw);
  } else if (!options->allocate) {
    free(raw);
  }
}

/* The processor */

#if (defined(__x86_64__) && MIRLO_GNU) || defined(_M_X64)
#if MIRLO_GNU
static int read_cpuid(uint32_t leaf, uint32_t part, uint32_t registers[4]) {
  return __get_cpuid_count(leaf, part, &registers[0], &registers[1], &registers[2], &registers[3]);
}

static uint32_t saved_registers(void) {
  uint32_t low, high;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return low;
}
#else
static int read_cpuid(uint32_t leaf, uint32_t part, uint32_t registers[4]) {
  int found[4], i;
  __cpuid(found, (int)(leaf & 0x80000000u));
  if ((uint32_t)found[0] < leaf) return 0;
  __cpuidex(found, (int)leaf, (int)part);
  for (i = 0; i < 4; ++i) registers[i] = (uint32_t)found[i];
  return 1;
}

static uint32_t saved_registers(void) { return (uint32_t)_xgetbv(0); }
#endif

#define MIRLO_TILES 0x60000 /* the registers of AMX and their configuration */

/* Whether the system lets all threads of the process use the registers of AMX, of which it asks Linux; others let none. */
#if defined(__linux__)
extern long syscall(long number, ...);
#endif

static int permits_tiles(void) {
#if defined(__linux__)
  return !syscall(158 /* arch_prctl */, 0x1023L /* ARCH_REQ_XCOMP_PERM */, 18L /* XFEATURE_XTILE_DATA */);
#else
  return 0;
#endif
}

static int has_feature(const char *name, size_t length) {
  /* leaf, register (0 eax, 1 ebx, 2 ecx, 3 edx), bit, and the registers that the system must save: 4 of AVX, 0xe0 of AVX-512, 0x60000 of AMX */
  static const struct { const char *name; uint32_t leaf, part, reg, bit, saved; } table[] = {
    {"sse3", 1, 0, 2, 0, 0}, {"ssse3", 1, 0, 2, 9, 0}, {"sse4.1", 1, 0, 2, 19, 0}, {"sse4.2", 1, 0, 2, 20, 0},
    {"popcnt", 1, 0, 2, 23, 0}, {"lzcnt", 0x80000001u, 0, 2, 5, 0}, {"fma", 1, 0, 2, 12, 4}, {"avx", 1, 0, 2, 28, 4},
    {"f16c", 1, 0, 2, 29, 4}, {"bmi", 7, 0, 1, 3, 0}, {"bmi2", 7, 0, 1, 8, 0}, {"avx2", 7, 0, 1, 5, 4},
    {"avx512f", 7, 0, 1, 16, 0xe4}, {"avx512dq", 7, 0, 1, 17, 0xe4}, {"avx512cd", 7, 0, 1, 28, 0xe4},
    {"avx512bw", 7, 0, 1, 30, 0xe4}, {"avx512vl", 7, 0, 1, 31, 0xe4}, {"avx512vbmi", 7, 0, 2, 1, 0xe4},
    {"avx512vbmi2", 7, 0, 2, 6, 0xe4}, {"gfni", 7, 0, 2, 8, 0}, {"avx512vnni", 7, 0, 2, 11, 0xe4},
    {"avx512bitalg", 7, 0, 2, 12, 0xe4}, {"avx512vpopcntdq", 7, 0, 2, 14, 0xe4}, {"avx512fp16", 7, 0, 3, 23, 0xe4},
    {"avxvnni", 7, 1, 0, 4, 4}, {"avx512bf16", 7, 1, 0, 5, 0xe4}, {"avxneconvert", 7, 1, 3, 5, 4},
    {"amx-bf16", 7, 0, 3, 22, MIRLO_TILES}, {"amx-tile", 7, 0, 3, 24, MIRLO_TILES}, {"amx-int8", 7, 0, 3, 25, MIRLO_TILES},
  };
  uint32_t registers[4], saved = 0;
  size_t i;
  if (read_cpuid(1, 0, registers) && (registers[2] >> 27 & 1)) saved = saved_registers();
  for (i = 0; i < sizeof table / sizeof *table; ++i) {
    if (strlen(table[i].name) != length || memcmp(table[i].name, name, length)) continue;
    if (!read_cpuid(table[i].leaf, table[i].part, registers)) return 0;
    if (!(registers[table[i].reg] >> table[i].bit & 1) || (saved & table[i].saved) != table[i].saved) return 0;
    return table[i].saved != MIRLO_TILES || permits_tiles();
  }
  return 0;
}
#elif defined(__aarch64__) && defined(__linux__)
static int has_feature(const char *name, size_t length) {
  static const struct { const char *name; unsigned long kind, bit; } table[] = {
    {"dotprod", AT_HWCAP, 20}, {"fullfp16", AT_HWCAP, 10}, {"bf16", AT_HWCAP2, 14}, {"i8mm", AT_HWCAP2, 13},
  };
  size_t i;
  if (length == 6 && (!memcmp(name, "sve256", length) || !memcmp(name, "sve512", length))) {
    int found = getauxval(AT_HWCAP) >> 22 & 1 ? prctl(51 /* PR_SVE_GET_VL */, 0, 0, 0, 0) : -1;
    return found >= 0 && (found & 0xffff) * 8 == (name[3] == '2' ? 256 : 512);
  }
  for (i = 0; i < sizeof table / sizeof *table; ++i) {
    if (strlen(table[i].name) == length && !memcmp(table[i].name, name, length)) return getauxval(table[i].kind) >> table[i].bit & 1;
  }
  return 0;
}
#elif defined(__aarch64__) && defined(__APPLE__)
static int has_feature(const char *name, size_t length) {
  static const struct { const char *name, *key; } table[] = {
    {"dotprod", "hw.optional.arm.FEAT_DotProd"}, {"fullfp16", "hw.optional.arm.FEAT_FP16"},
    {"bf16", "hw.optional.arm.FEAT_BF16"}, {"i8mm", "hw.optional.arm.FEAT_I8MM"},
  };
  size_t i;
  for (i = 0; i < sizeof table / sizeof *table; ++i) {
    int found = 0;
    size_t bytes = sizeof found;
    if (strlen(table[i].name) != length || memcmp(table[i].name, name, length)) continue;
    return !sysctlbyname(table[i].key, &found, &bytes, NULL, 0) && found;
  }
  return 0;
}
#elif MIRLO_WINDOWS && (defined(__aarch64__) || defined(_M_ARM64))
static int has_feature(const char *name, size_t length) {
  /* PF_ARM_V82_DP, V82_FP16, V86_BF16, V82_I8MM: old headers lack some; a system that does not know them says no */
  static const struct { const char *name; DWORD number; } table[] = {{"dotprod", 43}, {"fullfp16", 67}, {"bf16", 68}, {"i8mm", 66}};
  size_t i;
  for (i = 0; i < sizeof table / sizeof *table; ++i) {
    if (strlen(table[i].name) == length && !memcmp(table[i].name, name, length)) return IsProcessorFeaturePresent(table[i].number) != 0;
  }
  return 0;
}
#elif defined(__riscv) && defined(__linux__)
static int has_feature(const char *name, size_t length) {
  unsigned long known = getauxval(AT_HWCAP); /* a bit for each letter */
  if (length == 1 && *name >= 'a' && *name <= 'z') return known >> (*name - 'a') & 1;
  if (length > 4 && !memcmp(name, "zvl", 3)) { /* the least number of bits in a vector: vlenb has its bytes */
    unsigned long bytes = 0;
    if (known >> ('v' - 'a') & 1) __asm__ volatile("csrr %0, 0xc22" : "=r"(bytes));
    return bytes * 8 >= strtoul(name + 3, NULL, 10);
  }
  return 1; /* nothing to ask */
}
#else
static int has_feature(const char *name, size_t length) {
  (void)name, (void)length;
  return 1; /* nothing to ask */
}
#endif

int mirlo_has_feature(const char *name) { return name && has_feature(name, strlen(name)); }

static int check_machine(const mirlo_code *code, char *error, size_t bytes) {
  const char *at = code->features;
  while (*at) {
    size_t length = strcspn(at, " ");
    if (!has_feature(at, length)) {
      return describe(error, bytes, MIRLO_MACHINE, "'%s' was compiled for a processor with %.*s, which this one lacks", code->name,
                      (int)length, at);
    }
    at += length + (at[length] == ' ');
  }
  return MIRLO_OK;
}

/* The thread pool: one of the process. The functions are in mirlo_pool.o. */

#if (MIRLO_POSIX || MIRLO_WINDOWS) && !defined(MIRLO_NO_POOL)
void mirlo_parallel(void (*function)(void *, int32_t, int32_t), void *arguments, int32_t chunks, int32_t threads);
int32_t mirlo_pool_start(int32_t workers);
void mirlo_pool_reset(void);
void mirlo_pool_cores(const int32_t *cores, int32_t count);

static int32_t pool_cores = 1;

static void tell_cores(void) {
#if MIRLO_WINDOWS
  DWORD_PTR mine, all;
  int32_t count = 0;
  if (!GetProcessAffinityMask(GetCurrentProcess(), &mine, &all)) mine = 1;
  for (; mine; mine &= mine - 1) ++count;
  pool_cores = count > 1 ? count : 1;
#elif defined(__linux__)
  int32_t cores[CPU_SETSIZE], count = 0, i;
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) {
    for (i = 0; i < CPU_SETSIZE; ++i) {
      if (CPU_ISSET(i, &set)) cores[count++] = i;
    }
  }
  mirlo_pool_cores(cores, count);
  pool_cores = count ? count : 1;
#else
  long count = sysconf(_SC_NPROCESSORS_ONLN);
  pool_cores = count > 1 ? (int32_t)count : 1;
#endif
}

static void pool_init(void) {
  mirlo_pool_reset();
  tell_cores();
}

#if MIRLO_WINDOWS
static SRWLOCK pool_lock = SRWLOCK_INIT;
static int pool_exists;

static mirlo_parallel_fn start_pool(int32_t threads) {
  AcquireSRWLockExclusive(&pool_lock);
  if (!pool_exists) pool_init();
  pool_exists = 1;
  mirlo_pool_start((threads < pool_cores ? threads : pool_cores) - 1);
  ReleaseSRWLockExclusive(&pool_lock);
  return mirlo_parallel;
}
#else
static pthread_once_t pool_once = PTHREAD_ONCE_INIT;
static pthread_mutex_t pool_lock = PTHREAD_MUTEX_INITIALIZER;

static void pool_first(void) {
  pool_init();
  pthread_atfork(NULL, NULL, pool_init); /* a child has none of its parent's threads */
}

static mirlo_parallel_fn start_pool(int32_t threads) {
  pthread_once(&pool_once, pool_first);
  pthread_mutex_lock(&pool_lock);
  mirlo_pool_start((threads < pool_cores ? threads : pool_cores) - 1);
  pthread_mutex_unlock(&pool_lock);
  return mirlo_parallel;
}
#endif
#else
static mirlo_parallel_fn start_pool(int32_t threads) {
  (void)threads;
  return NULL; /* model code then runs on its caller's thread */
}
#endif

/* Models */

static int32_t count_threads(const mirlo_model *model) {
  int32_t wanted = model->options.threads, most = model->code->threads;
  return wanted > 0 && wanted < most ? wanted : most;
}

static int random_seed(DLTensor **tensors, int64_t count) {
  static uint32_t calls;
  uint32_t seed = (uint32_t)(uintptr_t)&seed * 2654435761u + ++calls;
  if (count != 2) return 1;
#if MIRLO_WINDOWS
  {
    unsigned int drawn;
    if (rand_s(&drawn) == 0) seed = drawn;
  }
#elif MIRLO_POSIX
  {
    int file = open("/dev/urandom", O_RDONLY | O_CLOEXEC);
    if (file >= 0) {
      if (read(file, &seed, sizeof seed) != (ssize_t)sizeof seed) seed += calls;
      close(file);
    }
  }
#endif
  memset((char *)tensors[1]->data + tensors[1]->byte_offset, 0, tensors[1]->dtype.bits / 8u);
  memcpy((char *)tensors[1]->data + tensors[1]->byte_offset, &seed, tensors[1]->dtype.bits / 8u < 4 ? 1 : 4);
  return 0;
}

static int require_all(DLTensor **tensors, int64_t count) {
  int64_t size = 1, i;
  const char *holds;
  if (count != 3) return 1;
  for (i = 0; i < tensors[0]->ndim; ++i) size *= tensors[0]->shape[i];
  holds = (const char *)tensors[0]->data + tensors[0]->byte_offset;
  for (i = 0; i < size; ++i) {
    if (!holds[i]) return 1;
  }
  memset((char *)tensors[2]->data + tensors[2]->byte_offset, 1, 1);
  return 0;
}

static const mirlo_function *find_function(const mirlo_options *options, const char *name) {
  int32_t i;
  for (i = 0; name && options->functions && i < options->function_count; ++i) {
    if (options->functions[i].name && !strcmp(options->functions[i].name, name)) return &options->functions[i];
  }
  return NULL;
}

/* Choose what a model calls for a packed function or a region: what the options name, what is linked, or a function of the run time. */
static int bind_function(mirlo_model *model, int32_t number, mirlo_region *region, char *error, size_t bytes) {
  const mirlo_code *code = model->code;
  const mirlo_callee *callee = &code->functions[number];
  const mirlo_function *given = find_function(&model->options, callee->name);
  mirlo_packed_fn call = NULL;
  if (!given) given = find_function(&model->options, callee->symbol);
  region->driver = given ? given->driver : callee->driver;
  region->context = given ? given->context : NULL;
  if (given && given->function) {
    call = given->function;
  } else if (region->driver) {
    call = callee->call;
  } else if (!given) {
    call = !strcmp(callee->name, "mirlo.require") ? require_all : !strcmp(callee->name, "mirlo.random_seed") ? random_seed : NULL;
  }
  memcpy(&model->params[code->params + number], &call, sizeof call);
  if (call) return MIRLO_OK;
  if (callee->symbol) {
    return describe(error, bytes, MIRLO_FUNCTION, "'%s' calls the driver '%s' for the region '%s': link it, or name it in options.functions",
                    code->name, callee->symbol, callee->name);
  }
  return describe(error, bytes, MIRLO_FUNCTION, "'%s' calls '%s': name it in options.functions", code->name, callee->name);
}

/* Fill in what the drivers of a model are given, and the functions that it calls. */
static int bind_functions(mirlo_model *model, char *error, size_t bytes) {
  const mirlo_code *code = model->code;
  const void **weights;
  size_t count = 0;
  int32_t i, w;
  int status = MIRLO_OK;
  if (!code->packed) return MIRLO_OK;
  for (i = 0; i < code->packed; ++i) count += (size_t)code->functions[i].weight_count;
  model->regions = (mirlo_region *)take(&model->options, (size_t)code->packed * sizeof *model->regions);
  model->region_weights = weights = (const void **)take(&model->options, (count + 1) * sizeof *weights);
  if (!model->regions || !weights) return describe(error, bytes, MIRLO_MEMORY, "there is no memory for a model");
  memset(model->regions, 0, (size_t)code->packed * sizeof *model->regions);
  for (i = 0; i < code->packed && status == MIRLO_OK; ++i) {
    const mirlo_callee *callee = &code->functions[i];
    mirlo_region *region = &model->regions[i];
    region->name = callee->name;
    region->program = callee->program_bytes ? model->weights + callee->program : NULL;
    region->program_bytes = callee->program_bytes;
    region->weights = weights;
    region->weight_count = callee->weight_count;
    region->threads = count_threads(model);
    for (w = 0; w < callee->weight_count; ++w) *weights++ = model->weights + callee->weights[w];
    status = bind_function(model, i, region, error, bytes);
  }
  return status;
}

static int check_weights(const mirlo_code *code, const unsigned char *file, size_t size, char *error, size_t bytes) {
  if (size < WEIGHTS_HEADER || memcmp(file, weights_magic, sizeof weights_magic) || memcmp(file + 8, code->weights_digest, 16) ||
      size - WEIGHTS_HEADER < code->weights_bytes) {
    return describe(error, bytes, MIRLO_FILE, "these are not the weights of '%s'", code->name);
  }
  return MIRLO_OK;
}

static int map_weights(mirlo_model *model, const char *path, char *error, size_t bytes) {
#if MIRLO_POSIX
  struct stat found;
  int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe would block */
  if (file < 0 || fstat(file, &found) || !S_ISREG(found.st_mode) || found.st_size <= 0) {
    if (file >= 0) close(file);
    return describe(error, bytes, MIRLO_FILE, "cannot read the weights '%s'", path);
  }
  model->mapped = (size_t)found.st_size;
  model->mapping = mmap(NULL, model->mapped, PROT_READ, MAP_PRIVATE, file, 0);
  close(file);
  if (model->mapping == MAP_FAILED) {
    model->mapping = NULL;
    return describe(error, bytes, MIRLO_FILE, "cannot map the weights '%s'", path);
  }
  return check_weights(model->code, (const unsigned char *)model->mapping, model->mapped, error, bytes);
#elif MIRLO_WINDOWS
  LARGE_INTEGER size;
  HANDLE file = CreateFileA(path, GENERIC_READ, FILE_SHARE_READ, NULL, OPEN_EXISTING, FILE_ATTRIBUTE_NORMAL, NULL), mapping = NULL;
  if (file == INVALID_HANDLE_VALUE || !GetFileSizeEx(file, &size) || size.QuadPart <= 0) {
    if (file != INVALID_HANDLE_VALUE) CloseHandle(file);
    return describe(error, bytes, MIRLO_FILE, "cannot read the weights '%s'", path);
  }
  mapping = CreateFileMappingA(file, NULL, PAGE_READONLY, 0, 0, NULL);
  if (mapping) model->mapping = MapViewOfFile(mapping, FILE_MAP_READ, 0, 0, 0);
  model->mapped = (size_t)size.QuadPart;
  if (mapping) CloseHandle(mapping); /* the view keeps it */
  CloseHandle(file);
  if (!model->mapping) return describe(error, bytes, MIRLO_FILE, "cannot map the weights '%s'", path);
  return check_weights(model->code, (const unsigned char *)model->mapping, model->mapped, error, bytes);
#else
  size_t size = WEIGHTS_HEADER + (size_t)model->code->weights_bytes, found = 0;
  FILE *file = fopen(path, "rb");
  model->mapping = file ? take(&model->options, size) : NULL;
  if (model->mapping) found = fread(model->mapping, 1, size, file);
  if (file) fclose(file);
  if (!file) return describe(error, bytes, MIRLO_FILE, "cannot read the weights '%s'", path);
  if (!model->mapping) return describe(error, bytes, MIRLO_MEMORY, "there is no memory for the weights '%s'", path);
  return check_weights(model->code, (const unsigned char *)model->mapping, found, error, bytes);
#endif
}

static int find_weights(mirlo_model *model, char *error, size_t bytes) {
  const mirlo_code *code = model->code;
  const unsigned char *file = (const unsigned char *)model->options.weights;
  int status;
  model->weights = code->weights;
  if (code->weights || !code->weights_bytes) return MIRLO_OK;
  if (file) {
    if ((uintptr_t)file % MIRLO_ALIGNMENT) return describe(error, bytes, MIRLO_INPUT, "weights in memory must be on a multiple of 64");
    status = check_weights(code, file, (size_t)(code->weights_bytes + WEIGHTS_HEADER), error, bytes);
  } else {
    const char *path = model->options.weights_path;
    if (!path) return describe(error, bytes, MIRLO_FILE, "'%s' needs options.weights_path, its file of weights", code->name);
    status = map_weights(model, path, error, bytes);
    file = (const unsigned char *)model->mapping;
  }
  if (status == MIRLO_OK) model->weights = file + WEIGHTS_HEADER;
  return status;
}

/* Copy the options of a program, which may be of an older version, and so smaller; NULL are the defaults. */
static int read_options(const mirlo_options *options, mirlo_options *given, char *error, size_t bytes) {
  memset(given, 0, sizeof *given);
  given->size = sizeof *given;
  if (!options) return MIRLO_OK;
  if (!options->size) {
    return describe(error, bytes, MIRLO_INPUT, "the size of the options is 0: set options.size to sizeof options");
  }
  if (options->size > sizeof *given) {
    return describe(error, bytes, MIRLO_VERSION, "the options have %lu bytes, mirlo.c knows %lu: build the program with the mirlo.h of this mirlo.c",
                    (unsigned long)options->size, (unsigned long)sizeof *given);
  }
  memcpy(given, options, options->size);
  given->size = sizeof *given;
  if (given->function_count && !given->functions) {
    return describe(error, bytes, MIRLO_INPUT, "options.function_count is %ld, but options.functions is NULL",
                    (long)given->function_count);
  }
  return MIRLO_OK;
}

int mirlo_create(const mirlo_code *code, const mirlo_options *options, mirlo_model **made, char *error, size_t error_bytes) {
  mirlo_options given;
  mirlo_model *model;
  int32_t i;
  int status;
  if (made) *made = NULL;
  if (!code || !made) return describe(error, error_bytes, MIRLO_INPUT, "%s is NULL", code ? "model" : "code");
  status = read_options(options, &given, error, error_bytes);
  if (status) return status;
  if (code->abi != MIRLO_ABI) {
    return describe(error, error_bytes, MIRLO_VERSION, "the model is of version %u, mirlo.c of %u: build them together",
                    (unsigned)code->abi, (unsigned)MIRLO_ABI);
  }
  for (i = 0; i < code->inputs + code->outputs; ++i) {
    if (!mirlo_is_spec(code->values[i].dims, code->values[i].ndim, code->words)) {
      return describe(error, error_bytes, MIRLO_FILE, "the dims of '%s' are no sizes of '%s': its object file is damaged", code->values[i].name, code->name);
    }
  }
  status = check_machine(code, error, error_bytes);
  if (status) return status;
  model = (mirlo_model *)take(&given, sizeof *model);
  if (!model) return describe(error, error_bytes, MIRLO_MEMORY, "there is no memory for a model");
  memset(model, 0, sizeof *model);
  model->code = code;
  model->options = given;
  status = find_weights(model, error, error_bytes);
  if (status == MIRLO_OK) {
    model->params = (void **)take(&given, sizeof(void *) * (size_t)(code->params + code->packed + 1));
    if (!model->params) status = describe(error, error_bytes, MIRLO_MEMORY, "there is no memory for a model");
  }
  if (status == MIRLO_OK) {
    static const char nothing[READABLE] = {0};
    for (i = 0; i < code->params; ++i) {
      const unsigned char *weight = model->weights ? model->weights + code->offsets[i] : (const unsigned char *)nothing;
      memcpy(&model->params[i], &weight, sizeof weight);
    }
    status = bind_functions(model, error, error_bytes);
  }
  if (status) {
    mirlo_close(model);
    return status;
  }
  if (code->set_parallel) {
    code->set_parallel(given.parallel ? given.parallel : start_pool(count_threads(model)));
  }
  *made = model;
  return MIRLO_OK;
}

int mirlo_open(const char *library, const char *name, const mirlo_options *options, mirlo_model **made, char *error,
               size_t error_bytes) {
#if MIRLO_POSIX || MIRLO_WINDOWS
  char symbol[256], path[4096];
#if MIRLO_WINDOWS
  HMODULE handle;
  FARPROC address;
#else
  void *handle;
#endif
  void *found;
  mirlo_options given;
  const char *slash;
  int status;
  if (made) *made = NULL;
  if (!library || !name || !made) {
    return describe(error, error_bytes, MIRLO_INPUT, "%s is NULL", !library ? "library" : !name ? "name" : "model");
  }
  slash = strrchr(library, '/');
  status = read_options(options, &given, error, error_bytes);
  if (status) return status;
  if (snprintf(symbol, sizeof symbol, "mirlo_model_%s", name) >= (int)sizeof symbol) {
    return describe(error, error_bytes, MIRLO_FILE, "the name of the model is too long");
  }
#if MIRLO_WINDOWS
  if (strrchr(library, '\\') > slash) slash = strrchr(library, '\\');
  handle = LoadLibraryA(library);
  if (!handle) return describe(error, error_bytes, MIRLO_FILE, "cannot open '%s': error %lu", library, (unsigned long)GetLastError());
  address = GetProcAddress(handle, symbol);
  memcpy(&found, &address, sizeof found);
#else
  handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (!handle) return describe(error, error_bytes, MIRLO_FILE, "%s", dlerror());
  found = dlsym(handle, symbol);
#endif
  if (!found) {
    describe(error, error_bytes, MIRLO_FILE, "'%s' has no model '%s'", library, name);
#if MIRLO_WINDOWS
    FreeLibrary(handle);
#else
    dlclose(handle);
#endif
    return MIRLO_FILE;
  }
  if (!given.weights && !given.weights_path) { /* the file beside the library */
    int folder = slash ? (int)(slash - library) + 1 : 0;
    int length = snprintf(path, sizeof path, "%.*s%s.weights", folder, library, name);
    if (length > 0 && length < (int)sizeof path) given.weights_path = path;
  }
  return mirlo_create((const mirlo_code *)found, &given, made, error, error_bytes);
#else
  (void)name, (void)options;
  if (made) *made = NULL;
  return describe(error, error_bytes, MIRLO_FILE, "cannot open '%s' on this system: link the model", library ? library : "NULL");
#endif
}

void mirlo_close(mirlo_model *model) {
  mirlo_options options;
  if (!model) return;
  options = model->options;
#if MIRLO_POSIX
  if (model->mapping) munmap(model->mapping, model->mapped);
#elif MIRLO_WINDOWS
  if (model->mapping) UnmapViewOfFile(model->mapping);
#else
  give(&options, model->mapping);
#endif
  give(&options, model->params);
  give(&options, model->regions);
  give(&options, (void *)model->region_weights);
  give(&options, model);
}

const mirlo_code *mirlo_code_of(const mirlo_model *model) { return model ? model->code : NULL; }

/* Contexts */

int mirlo_context_create(const mirlo_model *model, mirlo_context **made) {
  const mirlo_code *code;
  size_t tensors;
  mirlo_context *c;
  if (made) *made = NULL;
  if (!model || !made) return MIRLO_INPUT;
  code = model->code;
  tensors = (size_t)(code->inputs + code->outputs) + 1;
  c = (mirlo_context *)take(&model->options, sizeof *c);
  if (!c) return MIRLO_MEMORY;
  memset(c, 0, sizeof *c);
  c->model = model;
  c->tensors = (void **)take(&model->options, tensors * sizeof(void *));
  c->late = (void **)take(&model->options, tensors * sizeof(void *));
  c->record = (int64_t *)take(&model->options, ((size_t)code->words + OWN_WORDS) * sizeof(int64_t));
  if (c->record) c->record += OWN_WORDS;
  if (!c->tensors || !c->late || !c->record) {
    mirlo_context_destroy(c);
    return MIRLO_MEMORY;
  }
  memcpy(c->record - 2, &model->regions, sizeof model->regions);
  memcpy(c->record - 1, &c, sizeof c);
  *made = c;
  return MIRLO_OK;
}

void mirlo_context_destroy(mirlo_context *c) {
  const mirlo_options *options;
  if (!c) return;
  options = &c->model->options;
  while (c->blocks) {
    mirlo_block *next = c->blocks->next;
    give(options, c->blocks);
    c->blocks = next;
  }
  give(options, c->arena);
  give(options, c->tensors);
  give(options, c->late);
  if (c->record) give(options, c->record - OWN_WORDS);
  give(options, c);
}

const char *mirlo_message(const mirlo_context *c) { return c ? c->message : "the context is NULL"; }

size_t mirlo_bytes(const DLTensor *tensor) {
  uint64_t bytes;
  int32_t i;
  if (!tensor || (tensor->ndim > 0 && !tensor->shape)) return SIZE_MAX;
  for (i = 0; i < tensor->ndim; ++i) {
    if (tensor->shape[i] < 0) return SIZE_MAX; /* and no word of a record */
  }
  if (!mirlo_count(tensor->shape, tensor->ndim, NULL, (tensor->dtype.bits + 7u) / 8u, (uint64_t)SIZE_MAX - 1, &bytes)) return SIZE_MAX;
  return (size_t)bytes;
}

/* Return whether the bytes of a tensor fit in a size_t, which has 32 bits on some machines. */
static int has_room(const mirlo_context *c, const mirlo_value *value) {
  uint64_t bytes;
  return mirlo_count(value->dims, value->ndim, c->record, (value->dtype.bits + 7u) / 8u, MOST_BYTES, &bytes);
}

/* Check a tensor but for its sizes. */
static int check_tensor(mirlo_context *c, const mirlo_value *value, const DLTensor *tensor) {
  int32_t i;
  if ((int)tensor->device.device_type != kDLCPU) FAIL(c, MIRLO_INPUT, "'%s': expected a tensor of the CPU", value->name);
  if (tensor->dtype.code != value->dtype.code || tensor->dtype.bits != value->dtype.bits || tensor->dtype.lanes != 1) {
    FAIL(c, MIRLO_INPUT, "'%s': expected elements of type code %d with %d bits, found code %d with %d", value->name, value->dtype.code,
         value->dtype.bits, tensor->dtype.code, tensor->dtype.bits);
  }
  if (tensor->ndim != value->ndim) FAIL(c, MIRLO_INPUT, "'%s': expected %d dims, found %d", value->name, value->ndim, tensor->ndim);
  if (tensor->ndim && !tensor->shape) FAIL(c, MIRLO_INPUT, "'%s': the shape is NULL", value->name);
  for (i = 0; i < tensor->ndim; ++i) {
    if (tensor->shape[i] < 0) FAIL(c, MIRLO_INPUT, "'%s': a dim is negative", value->name);
  }
  if (!mirlo_is_contiguous(tensor->shape, tensor->strides, tensor->ndim)) FAIL(c, MIRLO_INPUT, "'%s': expected contiguous elements", value->name);
  return MIRLO_OK;
}

static char *nothing_of(mirlo_context *c) { return c->nothing + (MIRLO_ALIGNMENT - (uintptr_t)c->nothing % MIRLO_ALIGNMENT) % MIRLO_ALIGNMENT; }

/* The address of the data of a tensor; of something readable where there are no elements; NULL where it is wrong. */
static void *address_of(mirlo_context *c, const mirlo_value *value, const DLTensor *tensor) {
  char *data = (char *)tensor->data;
  int32_t i;
  for (i = 0; i < tensor->ndim; ++i) {
    if (!tensor->shape[i]) return nothing_of(c);
  }
  if (!data) {
    describe(c->message, sizeof c->message, 0, "'%s': the tensor has no data", value->name);
    return NULL;
  }
  data += tensor->byte_offset;
  if ((uintptr_t)data % (value->dtype.bits < 8 ? 1u : value->dtype.bits / 8u)) {
    describe(c->message, sizeof c->message, 0, "'%s': the data are not on a multiple of the element's size", value->name);
    return NULL;
  }
  return data;
}

/* Tell what compiled code found wrong. */
static int check_record(mirlo_context *c) {
  const mirlo_code *code = c->model->code;
  int64_t found = c->record[0];
  if (c->failed) FAIL(c, MIRLO_MEMORY, "there is no memory for a tensor whose size depends on data");
  if (found > 0) {
    const char *name = found <= code->packed ? code->functions[found - 1].name : "?";
    const char *driver = found <= code->packed ? code->functions[found - 1].symbol : NULL;
    if (driver) FAIL(c, MIRLO_FUNCTION, "the driver '%s' of the region '%s' failed: it returned %lld", driver, name, (long long)c->record[1]);
    FAIL(c, MIRLO_FUNCTION, "packed function '%s' failed: it returned %lld", name, (long long)c->record[1]);
  }
  if (found < 0) {
    const char *text = -1 - found < code->checks ? code->check_texts[-1 - found] : "a size";
    FAIL(c, MIRLO_SIZES, "%s: found %lld", text, (long long)c->record[1]);
  }
  return MIRLO_OK;
}

/* Check the inputs and compute all sizes that they determine. */
static int measure(mirlo_context *c, const DLTensor *inputs, const DLTensor *outputs) {
  const mirlo_code *code = c->model->code;
  int32_t i, d;
  if (code->inputs && !inputs) FAIL(c, MIRLO_INPUT, "the inputs are NULL");
  if (code->outputs && !outputs) FAIL(c, MIRLO_INPUT, "the outputs are NULL");
  for (i = 0; i < code->outputs; ++i) {
    const mirlo_value *value = &code->values[code->inputs + i];
    if (value->ndim && !outputs[i].shape) FAIL(c, MIRLO_INPUT, "'%s': the shape is NULL", value->name);
  }
  mirlo_clear_record(c->record, code->words);
  c->failed = 0;
  c->message[0] = 0;
  for (i = 0; i < code->inputs; ++i) {
    const mirlo_value *value = &code->values[i];
    int status = check_tensor(c, value, &inputs[i]);
    if (status) return status;
    d = (int32_t)mirlo_bind(value->dims, value->ndim, inputs[i].shape, c->record);
    if (d < value->ndim) {
      FAIL(c, value->dims[d] < 0 ? MIRLO_SIZES : MIRLO_INPUT, "'%s': dim %d is %lld, expected %lld", value->name, (int)d,
           (long long)inputs[i].shape[d], (long long)mirlo_size(value->dims[d], c->record));
    }
  }
  if (code->dynamic) {
    int status;
    code->entry(NULL, NULL, c->record, NULL);
    status = check_record(c);
    if (status) return status;
  }
  for (i = 0; i < code->inputs + code->outputs; ++i) {
    const mirlo_value *value = &code->values[i];
    if (!value->late && !has_room(c, value)) FAIL(c, MIRLO_SIZES, "'%s': no memory has room for its dims", value->name);
  }
  return MIRLO_OK;
}

int mirlo_shapes(mirlo_context *c, const DLTensor *inputs, DLTensor *outputs) {
  const mirlo_code *code;
  int status;
  int32_t i, d;
  if (!c) return MIRLO_INPUT;
  code = c->model->code;
  status = measure(c, inputs, outputs);
  if (status) return status;
  for (i = 0; i < code->outputs; ++i) {
    const mirlo_value *value = &code->values[code->inputs + i];
    outputs[i].device.device_type = kDLCPU;
    outputs[i].device.device_id = 0;
    outputs[i].dtype = value->dtype;
    outputs[i].ndim = value->ndim;
    outputs[i].strides = NULL;
    outputs[i].byte_offset = 0;
    for (d = 0; d < value->ndim; ++d) outputs[i].shape[d] = value->late && value->dims[d] < 0 ? -1 : mirlo_size(value->dims[d], c->record);
  }
  return MIRLO_OK;
}

/* What compiled code calls for memory whose size depends on data; `number` is an output, or below 0. */
static void *allocate_block(int64_t *record, int64_t number, int64_t bytes) {
  mirlo_context *c;
  mirlo_block **link = NULL, *found = NULL;
  memcpy(&c, record - 1, sizeof c);
  if (bytes >= 0 && bytes < READABLE) bytes = READABLE;
  if (bytes >= 0) link = mirlo_find_block(&c->blocks, bytes, INT64_MAX);
  if (link) {
    found = *link;
  } else if (bytes >= 0 && bytes <= INT64_MAX - MIRLO_BLOCK_BYTES) {
    found = (mirlo_block *)take(&c->model->options, (uint64_t)(bytes + MIRLO_BLOCK_BYTES));
    if (found) {
      found->bytes = bytes;
      found->next = c->blocks;
      c->blocks = found;
    }
  }
  if (!found) {
    c->failed = 1;
    return NULL;
  }
  found->used = 1;
  if (number >= 0 && number < c->model->code->outputs) c->late[number] = mirlo_elements(found);
  return mirlo_elements(found);
}

static int prepare_outputs(mirlo_context *c, const DLTensor *outputs) {
  const mirlo_code *code = c->model->code;
  int32_t i, d;
  for (i = 0; i < code->outputs; ++i) {
    const mirlo_value *value = &code->values[code->inputs + i];
    void **place = &c->tensors[code->inputs + i];
    int status;
    *place = NULL;
    if (value->late) {
      if (outputs[i].data) FAIL(c, MIRLO_INPUT, "'%s': its size depends on data: expected NULL for its data", value->name);
      continue;
    }
    status = check_tensor(c, value, &outputs[i]);
    if (status) return status;
    for (d = 0; d < value->ndim; ++d) {
      if (outputs[i].shape[d] != mirlo_size(value->dims[d], c->record)) {
        FAIL(c, MIRLO_INPUT, "'%s': dim %d is %lld, expected %lld", value->name, (int)d, (long long)outputs[i].shape[d],
             (long long)mirlo_size(value->dims[d], c->record));
      }
    }
    *place = address_of(c, value, &outputs[i]);
    if (!*place) return MIRLO_INPUT;
  }
  return MIRLO_OK;
}

static int prepare_memory(mirlo_context *c) {
  const mirlo_code *code = c->model->code;
  int64_t wanted = code->dynamic ? c->record[code->arena_word] : (int64_t)code->arena_bytes;
  mirlo_block *found;
  if (wanted < 0) FAIL(c, MIRLO_MEMORY, "the call needs more memory than can be counted");
  if ((uint64_t)wanted > c->arena_bytes) {
    give(&c->model->options, c->arena);
    c->arena_bytes = 0;
    c->arena = (char *)take(&c->model->options, (uint64_t)wanted);
    if (!c->arena) FAIL(c, MIRLO_MEMORY, "there are no %lld bytes for the call", (long long)wanted);
    c->arena_bytes = (size_t)wanted;
  }
  for (found = c->blocks; found; found = found->next) found->used = 0;
  return MIRLO_OK;
}

int mirlo_run(mirlo_context *c, const DLTensor *inputs, DLTensor *outputs) { return mirlo_profile(c, inputs, outputs, NULL); }

int mirlo_profile(mirlo_context *c, const DLTensor *inputs, DLTensor *outputs, uint64_t *stamps) {
  const mirlo_code *code;
  int status;
  int32_t i, d;
  if (!c) return MIRLO_INPUT;
  code = c->model->code;
  status = measure(c, inputs, outputs);
  if (status == MIRLO_OK) status = prepare_outputs(c, outputs);
  if (status == MIRLO_OK) status = prepare_memory(c);
  if (status) return status;
  for (i = 0; i < code->inputs; ++i) {
    c->tensors[i] = address_of(c, &code->values[i], &inputs[i]);
    if (!c->tensors[i]) return MIRLO_INPUT;
  }
  for (i = 0; i < code->outputs; ++i) {
    const mirlo_value *value = &code->values[code->inputs + i];
    void *data = value->late || c->tensors[code->inputs + i] == nothing_of(c) ? NULL : c->tensors[code->inputs + i];
    for (d = 0; data && d < code->inputs; ++d) {
      if (c->tensors[d] == data && value->in_place != d + 1) {
        FAIL(c, MIRLO_INPUT, "'%s' has the memory of '%s', which it cannot update in place", value->name, code->values[d].name);
      }
    }
  }
  c->tensors[code->inputs + code->outputs] = c->record;
  if (code->allocates) {
    void *(*function)(int64_t *, int64_t, int64_t) = allocate_block;
    memcpy(&c->record[code->words - 1], &function, sizeof function);
    memset(c->late, 0, (size_t)code->outputs * sizeof(void *));
  }
  code->entry(c->tensors, c->model->params, c->arena, stamps);
  status = check_record(c);
  if (status) return status;
  for (i = 0; i < code->outputs; ++i) {
    const mirlo_value *value = &code->values[code->inputs + i];
    if (!value->late) continue;
    outputs[i].data = c->late[i];
    outputs[i].device.device_type = kDLCPU;
    outputs[i].device.device_id = 0;
    outputs[i].dtype = value->dtype;
    outputs[i].ndim = value->ndim;
    outputs[i].strides = NULL;
    outputs[i].byte_offset = 0;
    for (d = 0; d < value->ndim; ++d) outputs[i].shape[d] = mirlo_size(value->dims[d], c->record);
  }
  return MIRLO_OK;
}
