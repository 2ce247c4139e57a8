; By `make runtime-ir` from runtime/c/cpuid.c. Sources 36ef4b744478b0f66d35a89e626bc9f7, text 82384e1b358933561ca4486963a442f6.
define void @mirlo_cpuid(i32 noundef %0, i32 noundef %1, ptr noundef writeonly captures(none) initializes((0, 16)) %2) local_unnamed_addr {
  %4 = getelementptr inbounds nuw i8, ptr %2, i64 4
  %5 = getelementptr inbounds nuw i8, ptr %2, i64 8
  %6 = getelementptr inbounds nuw i8, ptr %2, i64 12
  %7 = tail call { i32, i32, i32, i32 } asm "  xchg$(q$|$)  $(%$|$)rbx,${1:q}\0A  cpuid\0A  xchg$(q$|$)  $(%$|$)rbx,${1:q}", "={ax},=r,={cx},={dx},0,2,~{dirflag},~{fpsr},~{flags}"(i32 %0, i32 %1)
  %8 = extractvalue { i32, i32, i32, i32 } %7, 0
  %9 = extractvalue { i32, i32, i32, i32 } %7, 1
  %10 = extractvalue { i32, i32, i32, i32 } %7, 2
  %11 = extractvalue { i32, i32, i32, i32 } %7, 3
  store i32 %8, ptr %2, align 4
  store i32 %9, ptr %4, align 4
  store i32 %10, ptr %5, align 4
  store i32 %11, ptr %6, align 4
  ret void
}
