// The unit in a process: main memory as an array, and a clock.
#include "Vsystolic.h"
#include "Vsystolic__Dpi.h"
#include "verilated.h"

#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>

static std::mutex one_call;
static uint8_t *memory;
static uint64_t memory_size;
static bool outside;

static bool within(uint32_t address, uint32_t size) {
  const bool fits = size <= memory_size && address <= memory_size - size;
  outside |= !fits;
  return fits;
}

void systolic_read(unsigned int address, svBitVecVal *row) {
  // A row may begin in the last 15 bytes.
  std::memset(row, 0, 16);
  if (!within(address, 1)) return;
  const uint64_t left = memory_size - address;
  std::memcpy(row, memory + address, left < 16 ? left : 16);
}

void systolic_write(unsigned int address, const svBitVecVal *row, unsigned int size) {
  if (size <= 16 && within(address, size)) std::memcpy(memory + address, row, size);
}

// Execute commands of 32 bytes. Each barrier gives a record: the cycle, and cycles in which the loads, the array,
// requantization and the stores worked until then. Returns 0; 1 for an address outside of memory; 2 if the unit stops.
extern "C" int systolic_execute(uint8_t *bytes, uint64_t size, const uint32_t *commands, uint64_t count,
                                uint64_t *records, uint64_t record_count) {
  const std::lock_guard<std::mutex> lock(one_call);
  static std::unique_ptr<VerilatedContext> context(new VerilatedContext);
  static std::unique_ptr<Vsystolic> unit(new Vsystolic(context.get()));
  uint64_t cycle = 0, busy[4] = {}, seen = 0, last = 0;
  memory = bytes, memory_size = size, outside = false;
  const auto tick = [&] {
    unit->clk = 0, unit->eval();
    unit->clk = 1, unit->eval();
  };
  unit->command_valid = 0, unit->reset = 1;
  tick(), tick();
  unit->reset = 0;
  for (uint64_t i = 0; i < count || !unit->idle;) {
    unit->command_valid = i < count;
    if (i < count) std::memcpy(&unit->command, commands + 8 * i, 32);
    unit->clk = 0, unit->eval();
    const bool accepted = i < count && unit->command_ready;
    busy[0] += unit->busy_load, busy[1] += unit->busy_array;
    busy[2] += unit->busy_requantize, busy[3] += unit->busy_store;
    if (unit->busy_load | unit->busy_array | unit->busy_requantize | unit->busy_store | accepted) last = cycle;
    if (cycle - last > 10000) return 2;
    unit->clk = 1, unit->eval();
    ++cycle;
    if (accepted && (commands[8 * i] & 255) == 8 && seen < record_count) {
      uint64_t *record = records + 5 * seen++;
      record[0] = cycle;
      std::memcpy(record + 1, busy, sizeof busy);
    }
    if (accepted) ++i;
    if (outside) return 1;
  }
  return 0;
}
