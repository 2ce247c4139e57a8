/* Start of a program on an emulated board: vectors, memory, semihosting, and a count of instructions. */
#include "board.h"

extern uint32_t board_stack_top[], board_stack_end[], board_data[], board_data_end[], board_data_load[], board_bss[],
    board_bss_end[];
int main(void);

static volatile uint32_t wraps;

#define SYSTICK ((volatile uint32_t *)0xE000E010)
#define RELOAD 0xFFFFFFu
#define PAINT 0xA5A5A5A5u

static int semihost(int operation, const void *argument) {
  register int r0 __asm__("r0") = operation;
  register const void *r1 __asm__("r1") = argument;
  __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
  return r0;
}

void board_write(const char *text) { semihost(0x04, text); }

void board_write_bytes(const char *label, const void *data, size_t count) {
  static const char digits[] = "0123456789abcdef";
  const unsigned char *bytes = (const unsigned char *)data;
  char line[67];
  board_write(label);
  while (count) {
    size_t n = count < 32 ? count : 32, i;
    for (i = 0; i < n; ++i) {
      line[2 * i] = digits[bytes[i] >> 4];
      line[2 * i + 1] = digits[bytes[i] & 15];
    }
    line[2 * n] = 0;
    board_write(line);
    bytes += n;
    count -= n;
  }
  board_write("\n");
}

void board_write_number(const char *label, uint64_t number) {
  char line[22];
  int at = 21;
  line[at] = 0;
  do {
    line[--at] = (char)('0' + number % 10);
    number /= 10;
  } while (number);
  board_write(label);
  board_write(line + at);
  board_write("\n");
}

static void leave(int code) {
  uint32_t block[2];
  block[0] = 0x20026; /* the application ended */
  block[1] = (uint32_t)code;
  semihost(0x20, block);
  for (;;) {
  }
}

static void fault(void) {
  board_write("fault\n");
  leave(1);
}

static void tick(void) { ++wraps; }

void board_start_clock(void) {
  SYSTICK[1] = RELOAD;
  SYSTICK[2] = 0;
  SYSTICK[0] = 7;
}

uint64_t board_clock(void) {
  uint32_t before, now;
  do {
    before = wraps;
    now = SYSTICK[2];
  } while (before != wraps);
  return (uint64_t)before * (RELOAD + 1ull) + (RELOAD - now);
}

void board_spin(uint32_t count) { /* two instructions each */
  __asm__ volatile(".syntax unified\n1: subs %0, %0, #1\n bne 1b" : "+l"(count) : : "cc");
}

void board_paint_stack(void) {
  volatile uint32_t *at = board_stack_end;
  uint32_t here;
  for (; (uint32_t)(uintptr_t)at < (uint32_t)(uintptr_t)&here - 64; ++at) *at = PAINT;
}

uint32_t board_stack_used(void) {
  const volatile uint32_t *at = board_stack_end;
  uint32_t here;
  while (*at == PAINT) ++at;
  return (uint32_t)(uintptr_t)&here - (uint32_t)(uintptr_t)at;
}

static void reset(void) {
  uint32_t *from = board_data_load, *to;
#if defined(__ARM_FP) || defined(__ARM_FEATURE_MVE)
  *(volatile uint32_t *)0xE000ED88 |= 0xFu << 20; /* the coprocessors of floats and vectors */
  __asm__ volatile("dsb\n isb");
#endif
  for (to = board_data; to < board_data_end;) *to++ = *from++;
  for (to = board_bss; to < board_bss_end;) *to++ = 0;
  leave(main());
}

__attribute__((section(".vectors"), used)) static void *const vectors[16] = {
    board_stack_top, (void *)reset, (void *)fault, (void *)fault, (void *)fault, (void *)fault, (void *)fault, (void *)fault,
    (void *)fault, (void *)fault, (void *)fault, (void *)fault, (void *)fault, (void *)fault, (void *)fault, (void *)tick};
