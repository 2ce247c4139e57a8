; Signs of life of a process, counted in memory that other processes read, until the process ends. A thread of its own runs
; this without Python's lock: whatever the other threads compute, only a process that is stopped counts no further.

declare i32 @usleep(i32)

define void @mirlo_heartbeat(ptr %count) {
entry:
  br label %beat
beat:
  %before = load atomic i64, ptr %count monotonic, align 8
  %after = add i64 %before, 1
  store atomic i64 %after, ptr %count monotonic, align 8
  %slept = call i32 @usleep(i32 PERIOD_MICROSECONDS)
  br label %beat
}
