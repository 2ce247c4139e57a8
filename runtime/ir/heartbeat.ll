; By `make runtime-ir` from runtime/c/heartbeat.c. Sources 53a570dbb8417fb70ff2433fe92439f8, text 5c60587673e763853de12d7d8608966e.
define void @mirlo_heartbeat(ptr noundef captures(none) %0, i32 noundef %1) local_unnamed_addr {
  br label %3

3:
  %4 = load atomic i64, ptr %0 monotonic, align 8
  %5 = add nsw i64 %4, 1
  store atomic i64 %5, ptr %0 monotonic, align 8
  %6 = tail call i32 @usleep(i32 noundef %1)
  br label %3
}

declare i32 @usleep(i32 noundef) local_unnamed_addr
