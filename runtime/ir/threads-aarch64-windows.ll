; By `make runtime-ir` from runtime/c/threads.c. Sources 7ef45ca5ef1c3e6b005c212988ee1196, text 2035d873f7d327b183b4dfe41896759a.
@workers = internal unnamed_addr global i32 0, align 64
@team_number = internal unnamed_addr global ptr null, align 8
@team_region = internal unnamed_addr global ptr null, align 8
@alone_until = internal unnamed_addr global i64 0, align 8
@state = internal global i64 0, align 64
@sleepers = internal global i32 0, align 64
@busy = internal global i32 0, align 64
@limit = internal unnamed_addr global i32 0, align 4
@done = internal global i32 0, align 64
@total = internal unnamed_addr global i32 0, align 64
@alone_ticks = internal unnamed_addr global i64 0, align 8
@mutex = internal global ptr null, align 8
@condition = internal global ptr null, align 8
@function = internal unnamed_addr global ptr null, align 8
@arguments = internal unnamed_addr global ptr null, align 8

define dso_local void @mirlo_pool_cores(ptr noundef readnone captures(none) %0, i32 noundef %1) local_unnamed_addr {
  ret void
}

define dso_local i32 @mirlo_pool_start(i32 noundef %0) local_unnamed_addr {
  %2 = load i32, ptr @workers, align 64
  %3 = icmp slt i32 %2, %0
  br i1 %3, label %4, label %19

4:
  %5 = sext i32 %2 to i64
  %6 = sext i32 %0 to i64
  br label %7

7:
  %8 = phi i64 [ %5, %4 ], [ %14, %12 ]
  %9 = inttoptr i64 %8 to ptr
  %10 = tail call ptr @CreateThread(ptr noundef null, i64 noundef 0, ptr noundef nonnull @worker, ptr noundef %9, i32 noundef 0, ptr noundef null)
  %11 = icmp eq ptr %10, null
  br i1 %11, label %17, label %12

12:
  %13 = tail call i32 @CloseHandle(ptr noundef nonnull %10)
  %14 = add nsw i64 %8, 1
  %15 = trunc nsw i64 %14 to i32
  store atomic i32 %15, ptr @workers release, align 64
  %16 = icmp eq i64 %14, %6
  br i1 %16, label %19, label %7

17:
  %18 = trunc nsw i64 %8 to i32
  br label %19

19:
  %20 = phi i32 [ %2, %1 ], [ %18, %17 ], [ %0, %12 ]
  ret i32 %20
}

declare void @llvm.lifetime.start.p0(ptr captures(none))

define internal noalias noundef nonnull ptr @worker(ptr noundef %0) {
  %2 = ptrtoint ptr %0 to i64
  %3 = trunc i64 %2 to i32
  br label %4

4:
  %5 = phi i32 [ 0, %1 ], [ %29, %28 ]
  %6 = load atomic i64, ptr @state seq_cst, align 64
  %7 = trunc i64 %6 to i32
  %8 = and i32 %7, 1048575
  %9 = lshr i64 %6, 20
  %10 = trunc i64 %9 to i32
  %11 = and i32 %10, 1048575
  %12 = add nuw nsw i32 %11, %8
  %13 = load atomic i32, ptr @total monotonic, align 64
  %14 = icmp ult i32 %12, %13
  br i1 %14, label %15, label %53

15:
  %16 = load atomic i32, ptr @limit monotonic, align 4
  %17 = icmp sgt i32 %16, %3
  br i1 %17, label %18, label %53

18:
  %19 = load atomic i64, ptr @state acquire, align 64
  %20 = lshr i64 %19, 20
  %21 = trunc i64 %20 to i32
  %22 = and i32 %21, 1048575
  %23 = trunc i64 %19 to i32
  %24 = and i32 %23, 1048575
  %25 = add nuw nsw i32 %22, %24
  %26 = load atomic i32, ptr @total acquire, align 64
  %27 = icmp ult i32 %25, %26
  br i1 %27, label %30, label %28

28:
  %29 = phi i32 [ %54, %53 ], [ 0, %73 ], [ 0, %18 ], [ 0, %43 ]
  br label %4

30:
  %31 = phi i32 [ %47, %43 ], [ %22, %18 ]
  %32 = phi i64 [ %44, %43 ], [ %19, %18 ]
  %33 = add i64 %32, 1048576
  %34 = cmpxchg ptr @state, i64 %32, i64 %33 acq_rel monotonic, align 64
  %35 = extractvalue { i64, i1 } %34, 1
  br i1 %35, label %36, label %43

36:
  %37 = load atomic i32, ptr @total monotonic, align 64
  %38 = load ptr, ptr @function, align 8
  %39 = load ptr, ptr @arguments, align 8
  %40 = xor i32 %31, -1
  %41 = add i32 %37, %40
  tail call void %38(ptr noundef %39, i32 noundef %41, i32 noundef %37)
  %42 = atomicrmw add ptr @done, i32 1 acq_rel, align 64
  br label %43

43:
  %44 = load atomic i64, ptr @state acquire, align 64
  %45 = lshr i64 %44, 20
  %46 = trunc i64 %45 to i32
  %47 = and i32 %46, 1048575
  %48 = trunc i64 %44 to i32
  %49 = and i32 %48, 1048575
  %50 = add nuw nsw i32 %47, %49
  %51 = load atomic i32, ptr @total acquire, align 64
  %52 = icmp ult i32 %50, %51
  br i1 %52, label %30, label %28

53:
  tail call void @llvm.aarch64.hint(i32 1)
  %54 = add nsw i32 %5, 1
  %55 = icmp sgt i32 %5, 3999
  br i1 %55, label %56, label %28

56:
  tail call void @AcquireSRWLockExclusive(ptr noundef nonnull @mutex)
  %57 = atomicrmw add ptr @sleepers, i32 1 seq_cst, align 64
  br label %58

58:
  %59 = load atomic i64, ptr @state seq_cst, align 64
  %60 = trunc i64 %59 to i32
  %61 = and i32 %60, 1048575
  %62 = lshr i64 %59, 20
  %63 = trunc i64 %62 to i32
  %64 = and i32 %63, 1048575
  %65 = add nuw nsw i32 %64, %61
  %66 = load atomic i32, ptr @total monotonic, align 64
  %67 = icmp ult i32 %65, %66
  br i1 %67, label %68, label %71

68:
  %69 = load atomic i32, ptr @limit monotonic, align 4
  %70 = icmp sgt i32 %69, %3
  br i1 %70, label %73, label %71

71:
  %72 = tail call i32 @SleepConditionVariableSRW(ptr noundef nonnull @condition, ptr noundef nonnull @mutex, i32 noundef -1, i32 noundef 0)
  br label %58

73:
  %74 = atomicrmw sub ptr @sleepers, i32 1 seq_cst, align 64
  tail call void @ReleaseSRWLockExclusive(ptr noundef nonnull @mutex)
  br label %28
}

declare void @llvm.lifetime.end.p0(ptr captures(none))

define dso_local void @mirlo_pool_team(ptr noundef %0, ptr noundef %1) local_unnamed_addr {
  store ptr %1, ptr @team_number, align 8
  %3 = ptrtoint ptr %0 to i64
  store atomic i64 %3, ptr @team_region release, align 8
  store atomic i64 0, ptr @alone_until monotonic, align 8
  ret void
}

define dso_local void @mirlo_pool_reset() local_unnamed_addr {
  store i64 0, ptr @state, align 64
  store i32 0, ptr @workers, align 64
  store i32 0, ptr @sleepers, align 64
  store i32 0, ptr @busy, align 64
  store i32 0, ptr @limit, align 4
  store i32 0, ptr @done, align 64
  store i32 0, ptr @total, align 64
  store i64 0, ptr @alone_ticks, align 8
  store i64 0, ptr @alone_until, align 8
  store ptr null, ptr @team_region, align 8
  store ptr null, ptr @mutex, align 8
  store ptr null, ptr @condition, align 8
  ret void
}

define dso_local void @mirlo_parallel(ptr noundef %0, ptr noundef %1, i32 noundef %2, i32 noundef %3) local_unnamed_addr {
  %5 = alloca i32, align 4
  %6 = icmp ugt i32 %3, 1
  %7 = add i32 %2, -2
  %8 = icmp ult i32 %7, 1048573
  %9 = and i1 %8, %6
  br i1 %9, label %10, label %18

10:
  %11 = tail call i64 @llvm.readcyclecounter()
  %12 = load atomic i64, ptr @alone_until monotonic, align 8
  call void @llvm.lifetime.start.p0(ptr nonnull %5)
  %13 = add nsw i32 %3, -1
  store i32 %13, ptr %5, align 4
  %14 = icmp ult i64 %11, %12
  br i1 %14, label %21, label %15

15:
  %16 = cmpxchg ptr @busy, i32 0, i32 1 acquire monotonic, align 64
  %17 = extractvalue { i32, i1 } %16, 1
  br i1 %17, label %26, label %21

18:
  %19 = load atomic i64, ptr @alone_until monotonic, align 8
  call void @llvm.lifetime.start.p0(ptr nonnull %5)
  %20 = icmp sgt i32 %2, 0
  br i1 %20, label %21, label %101

21:
  br label %22

22:
  %23 = phi i32 [ %24, %22 ], [ 0, %21 ]
  tail call void %0(ptr noundef %1, i32 noundef %23, i32 noundef %2)
  %24 = add nuw nsw i32 %23, 1
  %25 = icmp eq i32 %24, %2
  br i1 %25, label %101, label %22

26:
  %27 = load i32, ptr %5, align 4
  %28 = load atomic i64, ptr @state monotonic, align 64
  %29 = and i64 %28, -1099511627776
  %30 = add i64 %29, 1099511627776
  %31 = load atomic i64, ptr @team_region acquire, align 8
  %32 = or disjoint i64 %30, 1099511627775
  store atomic i64 %32, ptr @state seq_cst, align 64
  store ptr %0, ptr @function, align 8
  store ptr %1, ptr @arguments, align 8
  store atomic i32 0, ptr @done monotonic, align 64
  %33 = icmp eq i64 %31, 0
  %34 = select i1 %33, i32 %27, i32 0
  store atomic i32 %34, ptr @limit monotonic, align 4
  store atomic i32 %2, ptr @total release, align 64
  store atomic i64 %30, ptr @state seq_cst, align 64
  br i1 %33, label %37, label %35

35:
  %36 = inttoptr i64 %31 to ptr
  call void %36(ptr noundef nonnull @member, ptr noundef nonnull %5, i32 noundef 0, i32 noundef 0)
  br label %73

37:
  %38 = load atomic i32, ptr @sleepers seq_cst, align 64
  %39 = icmp eq i32 %38, 0
  br i1 %39, label %42, label %40

40:
  %41 = load atomic i32, ptr @workers acquire, align 64
  tail call void @AcquireSRWLockExclusive(ptr noundef nonnull @mutex)
  tail call void @WakeAllConditionVariable(ptr noundef nonnull @condition)
  tail call void @ReleaseSRWLockExclusive(ptr noundef nonnull @mutex)
  br label %42

42:
  %43 = load atomic i64, ptr @state acquire, align 64
  %44 = lshr i64 %43, 20
  %45 = trunc i64 %44 to i32
  %46 = and i32 %45, 1048575
  %47 = trunc i64 %43 to i32
  %48 = and i32 %47, 1048575
  %49 = add nuw nsw i32 %46, %48
  %50 = load atomic i32, ptr @total acquire, align 64
  %51 = icmp ult i32 %49, %50
  br i1 %51, label %52, label %73

52:
  %53 = phi i32 [ %69, %63 ], [ %48, %42 ]
  %54 = phi i64 [ %64, %63 ], [ %43, %42 ]
  %55 = add i64 %54, 1
  %56 = cmpxchg ptr @state, i64 %54, i64 %55 acq_rel monotonic, align 64
  %57 = extractvalue { i64, i1 } %56, 1
  br i1 %57, label %58, label %63

58:
  %59 = load atomic i32, ptr @total monotonic, align 64
  %60 = load ptr, ptr @function, align 8
  %61 = load ptr, ptr @arguments, align 8
  tail call void %60(ptr noundef %61, i32 noundef %53, i32 noundef %59)
  %62 = atomicrmw add ptr @done, i32 1 acq_rel, align 64
  br label %63

63:
  %64 = load atomic i64, ptr @state acquire, align 64
  %65 = lshr i64 %64, 20
  %66 = trunc i64 %65 to i32
  %67 = and i32 %66, 1048575
  %68 = trunc i64 %64 to i32
  %69 = and i32 %68, 1048575
  %70 = add nuw nsw i32 %67, %69
  %71 = load atomic i32, ptr @total acquire, align 64
  %72 = icmp ult i32 %70, %71
  br i1 %72, label %52, label %73

73:
  %74 = call i64 @llvm.readcyclecounter()
  br label %75

75:
  %76 = phi i1 [ false, %84 ], [ true, %73 ]
  br label %77

77:
  %78 = phi i32 [ %82, %81 ], [ 0, %75 ]
  %79 = load atomic i32, ptr @done acquire, align 64
  %80 = icmp eq i32 %79, %2
  br i1 %80, label %86, label %81

81:
  call void @llvm.aarch64.hint(i32 1)
  %82 = add nuw nsw i32 %78, 1
  %83 = icmp eq i32 %82, 4001
  br i1 %83, label %84, label %77

84:
  %85 = call i32 @SwitchToThread()
  br label %75

86:
  br i1 %76, label %100, label %87

87:
  %88 = call i64 @llvm.readcyclecounter()
  %89 = sub i64 %88, %74
  %90 = sub i64 %74, %11
  %91 = shl i64 %90, 2
  %92 = icmp ugt i64 %89, %91
  br i1 %92, label %93, label %100

93:
  %94 = load i64, ptr @alone_ticks, align 8
  %95 = add i64 %94, %12
  %96 = icmp ult i64 %88, %95
  %97 = select i1 %96, i64 4, i64 3
  %98 = shl i64 %89, %97
  store i64 %98, ptr @alone_ticks, align 8
  %99 = add i64 %98, %88
  store atomic i64 %99, ptr @alone_until monotonic, align 8
  br label %100

100:
  store atomic i32 0, ptr @busy release, align 64
  br label %101

101:
  call void @llvm.lifetime.end.p0(ptr nonnull %5)
  ret void
}

define internal void @member(ptr noundef readonly captures(none) %0) {
  %2 = load ptr, ptr @team_number, align 8
  %3 = tail call i32 %2()
  %4 = icmp eq i32 %3, 0
  br i1 %4, label %5, label %36

5:
  %6 = load atomic i64, ptr @state acquire, align 64
  %7 = lshr i64 %6, 20
  %8 = trunc i64 %7 to i32
  %9 = and i32 %8, 1048575
  %10 = trunc i64 %6 to i32
  %11 = and i32 %10, 1048575
  %12 = add nuw nsw i32 %9, %11
  %13 = load atomic i32, ptr @total acquire, align 64
  %14 = icmp ult i32 %12, %13
  br i1 %14, label %15, label %72

15:
  %16 = phi i32 [ %32, %26 ], [ %11, %5 ]
  %17 = phi i64 [ %27, %26 ], [ %6, %5 ]
  %18 = add i64 %17, 1
  %19 = cmpxchg ptr @state, i64 %17, i64 %18 acq_rel monotonic, align 64
  %20 = extractvalue { i64, i1 } %19, 1
  br i1 %20, label %21, label %26

21:
  %22 = load atomic i32, ptr @total monotonic, align 64
  %23 = load ptr, ptr @function, align 8
  %24 = load ptr, ptr @arguments, align 8
  tail call void %23(ptr noundef %24, i32 noundef %16, i32 noundef %22)
  %25 = atomicrmw add ptr @done, i32 1 acq_rel, align 64
  br label %26

26:
  %27 = load atomic i64, ptr @state acquire, align 64
  %28 = lshr i64 %27, 20
  %29 = trunc i64 %28 to i32
  %30 = and i32 %29, 1048575
  %31 = trunc i64 %27 to i32
  %32 = and i32 %31, 1048575
  %33 = add nuw nsw i32 %30, %32
  %34 = load atomic i32, ptr @total acquire, align 64
  %35 = icmp ult i32 %33, %34
  br i1 %35, label %15, label %72

36:
  %37 = load i32, ptr %0, align 4
  %38 = icmp ugt i32 %3, %37
  br i1 %38, label %72, label %39

39:
  %40 = load atomic i64, ptr @state acquire, align 64
  %41 = lshr i64 %40, 20
  %42 = trunc i64 %41 to i32
  %43 = and i32 %42, 1048575
  %44 = trunc i64 %40 to i32
  %45 = and i32 %44, 1048575
  %46 = add nuw nsw i32 %43, %45
  %47 = load atomic i32, ptr @total acquire, align 64
  %48 = icmp ult i32 %46, %47
  br i1 %48, label %49, label %72

49:
  %50 = phi i32 [ %66, %62 ], [ %43, %39 ]
  %51 = phi i64 [ %63, %62 ], [ %40, %39 ]
  %52 = add i64 %51, 1048576
  %53 = cmpxchg ptr @state, i64 %51, i64 %52 acq_rel monotonic, align 64
  %54 = extractvalue { i64, i1 } %53, 1
  br i1 %54, label %55, label %62

55:
  %56 = load atomic i32, ptr @total monotonic, align 64
  %57 = load ptr, ptr @function, align 8
  %58 = load ptr, ptr @arguments, align 8
  %59 = xor i32 %50, -1
  %60 = add i32 %56, %59
  tail call void %57(ptr noundef %58, i32 noundef %60, i32 noundef %56)
  %61 = atomicrmw add ptr @done, i32 1 acq_rel, align 64
  br label %62

62:
  %63 = load atomic i64, ptr @state acquire, align 64
  %64 = lshr i64 %63, 20
  %65 = trunc i64 %64 to i32
  %66 = and i32 %65, 1048575
  %67 = trunc i64 %63 to i32
  %68 = and i32 %67, 1048575
  %69 = add nuw nsw i32 %66, %68
  %70 = load atomic i32, ptr @total acquire, align 64
  %71 = icmp ult i32 %69, %70
  br i1 %71, label %49, label %72

72:
  ret void
}

declare dso_local ptr @CreateThread(ptr noundef, i64 noundef, ptr noundef, ptr noundef, i32 noundef, ptr noundef) local_unnamed_addr

declare dso_local i32 @CloseHandle(ptr noundef) local_unnamed_addr

declare void @llvm.aarch64.hint(i32)

declare dso_local i32 @SleepConditionVariableSRW(ptr noundef, ptr noundef, i32 noundef, i32 noundef) local_unnamed_addr

declare i64 @llvm.readcyclecounter()

declare dso_local void @AcquireSRWLockExclusive(ptr noundef) local_unnamed_addr

declare dso_local void @WakeAllConditionVariable(ptr noundef) local_unnamed_addr

declare dso_local void @ReleaseSRWLockExclusive(ptr noundef) local_unnamed_addr

declare dso_local i32 @SwitchToThread() local_unnamed_addr
