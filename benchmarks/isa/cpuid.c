/* Answers `cpuid` in place of the processor, without what lies above AVX2; for `LD_PRELOAD`.
 *
 * Libraries are copied with each `cpuid` replaced by 0F 0A, which no processor executes (__init__.py). The handler of its
 * signal runs `cpuid` and clears bits: AVX-512 in all parts, AVX-VNNI and its kin, AVX10, AMX.
 * With MIRLO_COUNT_EVEX=FILE, timer signals count how many of the instructions that they interrupt are encoded for AVX-512
 * (EVEX, a first byte of 0x62), and the process writes both counts to the file when it ends. */
#define _GNU_SOURCE
#include <cpuid.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/time.h>
#include <ucontext.h>

static volatile unsigned long samples, evex;

static void answer(int number, siginfo_t *info, void *context) {
  (void)info;
  greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
  const unsigned char *at = (const unsigned char *)registers[REG_RIP];
  if (at[0] != 0x0f || at[1] != 0x0a) { /* not ours: let it end the process */
    signal(number, SIG_DFL);
    return;
  }
  unsigned leaf = (unsigned)registers[REG_RAX], part = (unsigned)registers[REG_RCX], a, b, c, d;
  __cpuid_count(leaf, part, a, b, c, d);
  if (leaf == 7 && part == 0) {
    b &= ~(1u << 16 | 1u << 17 | 1u << 21 | 1u << 26 | 1u << 27 | 1u << 28 | 1u << 30 | 1u << 31); /* F DQ IFMA PF ER CD BW VL */
    c &= ~(1u << 1 | 1u << 6 | 1u << 11 | 1u << 12 | 1u << 14); /* VBMI VBMI2 VNNI BITALG VPOPCNTDQ */
    d &= ~(1u << 2 | 1u << 3 | 1u << 8 | 1u << 22 | 1u << 23 | 1u << 24 | 1u << 25); /* 4VNNIW 4FMAPS VP2INTERSECT AMX-BF16 FP16 AMX-TILE AMX-INT8 */
  } else if (leaf == 7 && part == 1) {
    a &= ~(1u << 4 | 1u << 5 | 1u << 21 | 1u << 23); /* AVX-VNNI AVX512-BF16 AMX-FP16 AVX-IFMA */
    d &= ~(1u << 4 | 1u << 5 | 1u << 8 | 1u << 10 | 1u << 19); /* AVX-VNNI-INT8 AVX-NE-CONVERT AMX-COMPLEX AVX-VNNI-INT16 AVX10 */
  } else if (leaf == 0x24) {
    a = b = c = d = 0;
  } else if (leaf == 0xd && part == 0) {
    a &= ~(7u << 5 | 3u << 17); /* the state of AVX-512 and of AMX */
  }
  registers[REG_RAX] = a, registers[REG_RBX] = b, registers[REG_RCX] = c, registers[REG_RDX] = d;
  registers[REG_RIP] += 2;
}

static void count(int number, siginfo_t *info, void *context) {
  (void)number, (void)info;
  ++samples;
  evex += *(const unsigned char *)((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP] == 0x62;
}

static const char *target;

/* It comes before the initialization of libc, which sets what getenv reads. */
__attribute__((constructor)) static void begin(int count_of_words, char **words, char **environment) {
  static const char name[] = "MIRLO_COUNT_EVEX=";
  (void)count_of_words, (void)words;
  struct sigaction action = {.sa_sigaction = answer, .sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK};
  sigaction(SIGILL, &action, NULL);
  for (; *environment; ++environment) {
    if (!strncmp(*environment, name, sizeof name - 1)) target = *environment + sizeof name - 1;
  }
  if (!target) return;
  action.sa_sigaction = count, action.sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK;
  sigaction(SIGPROF, &action, NULL);
  struct itimerval every = {{0, 1000}, {0, 1000}};
  setitimer(ITIMER_PROF, &every, NULL);
}

__attribute__((destructor)) static void finish(void) {
  if (!target) return;
  struct itimerval never = {{0, 0}, {0, 0}};
  setitimer(ITIMER_PROF, &never, NULL);
  FILE *file = fopen(target, "w");
  if (!file) return;
  fprintf(file, "%lu %lu\n", samples, evex);
  fclose(file);
}
