/* What programs on an emulated board call. */
#ifndef BOARD_H
#define BOARD_H

#include <stddef.h>
#include <stdint.h>

void board_write(const char *text);
void board_write_bytes(const char *label, const void *data, size_t count);
void board_write_number(const char *label, uint64_t number);
void board_start_clock(void);
uint64_t board_clock(void);
void board_spin(uint32_t count);
void board_paint_stack(void);
uint32_t board_stack_used(void);

#endif
