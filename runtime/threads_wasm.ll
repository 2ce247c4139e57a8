; The functions of POSIX threads that the pool calls, on WebAssembly, where memory is shared by instances of one module. A thread is
; an instance that the program makes, and that calls `mirlo_pool_work`: there is nothing to create. A mutex is 1 while it is held, for
; a few instructions, so threads poll it. A condition variable counts its broadcasts.

declare i32 @llvm.wasm.memory.atomic.wait32(ptr, i32, i64)
declare i32 @llvm.wasm.memory.atomic.notify(ptr, i32)

@may_sleep = internal global i32 0
@never = internal global i32 0
@sleeps = internal global i32 0

; Work as the helper of this number, from 0 on, for ever.
define void @mirlo_pool_work(i32 %id) {
  %wide = zext i32 %id to i64
  %argument = inttoptr i64 %wide to ptr
  %ended = call ptr @worker(ptr %argument)
  ret void
}
; Whether the caller of models may sleep, as the main thread of a browser may not.
define void @mirlo_pool_may_sleep(i32 %may) {
  store i32 %may, ptr @may_sleep
  ret void
}

; How many times workers went to sleep, since the module was loaded.
define i32 @mirlo_pool_sleeps() {
  %count = load atomic i32, ptr @sleeps monotonic, align 4
  ret i32 %count
}

define internal i32 @pthread_create(ptr %thread, ptr %attributes, ptr %function, ptr %argument) {
  store i64 0, ptr %thread
  ret i32 0
}
define internal i32 @pthread_attr_init(ptr %attributes) { ret i32 0 }
define internal i32 @pthread_attr_setdetachstate(ptr %attributes, i32 %state) { ret i32 0 }
define internal i32 @pthread_mutex_init(ptr %mutex, ptr %attributes) {
  store i32 0, ptr %mutex
  ret i32 0
}
define internal i32 @pthread_mutex_lock(ptr %mutex) {
entry:
  br label %try
try:
  %before = atomicrmw xchg ptr %mutex, i32 1 seq_cst
  %held = icmp ne i32 %before, 0
  br i1 %held, label %try, label %out
out:
  ret i32 0
}
define internal i32 @pthread_mutex_unlock(ptr %mutex) {
  store atomic i32 0, ptr %mutex seq_cst, align 4
  ret i32 0
}
define internal i32 @pthread_cond_init(ptr %condition, ptr %attributes) {
  store i32 0, ptr %condition
  ret i32 0
}
define internal i32 @pthread_cond_wait(ptr %condition, ptr %mutex) {
  %counted = atomicrmw add ptr @sleeps, i32 1 monotonic
  %seen = load atomic i32, ptr %condition seq_cst, align 4
  %unlocked = call i32 @pthread_mutex_unlock(ptr %mutex)
  %woken = call i32 @llvm.wasm.memory.atomic.wait32(ptr %condition, i32 %seen, i64 -1)
  %locked = call i32 @pthread_mutex_lock(ptr %mutex)
  ret i32 0
}
define internal i32 @pthread_cond_broadcast(ptr %condition) {
  %before = atomicrmw add ptr %condition, i32 1 seq_cst
  %count = call i32 @llvm.wasm.memory.atomic.notify(ptr %condition, i32 -1)
  ret i32 0
}
define internal i32 @sched_yield() {
  %may = load i32, ptr @may_sleep
  %can = icmp ne i32 %may, 0
  br i1 %can, label %sleep, label %out
sleep:
  %late = call i32 @llvm.wasm.memory.atomic.wait32(ptr @never, i32 0, i64 20000)
  br label %out
out:
  ret i32 0
}
