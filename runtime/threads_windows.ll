; The functions of POSIX threads that the pool calls, on Windows. A mutex is a slim lock, one pointer that is null at first, as is
; a condition variable. The start of a thread has the same convention as a function of C there, and its result is of no interest.

declare void @AcquireSRWLockExclusive(ptr)
declare void @ReleaseSRWLockExclusive(ptr)
declare i32 @SleepConditionVariableSRW(ptr, ptr, i32, i32)
declare void @WakeAllConditionVariable(ptr)
declare ptr @CreateThread(ptr, i64, ptr, ptr, i32, ptr)
declare i32 @CloseHandle(ptr)
declare i32 @SwitchToThread()

define internal i32 @pthread_create(ptr %thread, ptr %attributes, ptr %function, ptr %argument) {
  %handle = call ptr @CreateThread(ptr null, i64 0, ptr %function, ptr %argument, i32 0, ptr null)
  %failed = icmp eq ptr %handle, null
  br i1 %failed, label %out, label %made
made:
  store i64 0, ptr %thread
  %closed = call i32 @CloseHandle(ptr %handle)
  br label %out
out:
  %code = zext i1 %failed to i32
  ret i32 %code
}
define internal i32 @pthread_attr_init(ptr %attributes) { ret i32 0 }
define internal i32 @pthread_attr_setdetachstate(ptr %attributes, i32 %state) { ret i32 0 }
define internal i32 @pthread_mutex_init(ptr %mutex, ptr %attributes) {
  store ptr null, ptr %mutex
  ret i32 0
}
define internal i32 @pthread_mutex_lock(ptr %mutex) {
  call void @AcquireSRWLockExclusive(ptr %mutex)
  ret i32 0
}
define internal i32 @pthread_mutex_unlock(ptr %mutex) {
  call void @ReleaseSRWLockExclusive(ptr %mutex)
  ret i32 0
}
define internal i32 @pthread_cond_init(ptr %condition, ptr %attributes) {
  store ptr null, ptr %condition
  ret i32 0
}
define internal i32 @pthread_cond_wait(ptr %condition, ptr %mutex) {
  %woken = call i32 @SleepConditionVariableSRW(ptr %condition, ptr %mutex, i32 -1, i32 0)
  ret i32 0
}
define internal i32 @pthread_cond_broadcast(ptr %condition) {
  call void @WakeAllConditionVariable(ptr %condition)
  ret i32 0
}
define internal i32 @sched_yield() {
  %other = call i32 @SwitchToThread()
  ret i32 0
}
