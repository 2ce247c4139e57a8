; By `make runtime-ir` from runtime/c/threads.c. Sources c09a9d749cb243bcb18ce67fbccc8683, text 47b8c1a0855c836879a432ea5b2c8e95.
@may_sleep = internal unnamed_addr global i32 0, align 4
@sleeps = internal global i32 0, align 4
@workers = internal unnamed_addr global i32 0, align 64
@team_number = internal unnamed_addr global ptr null, align 4
@team_region = internal unnamed_addr global ptr null, align 4
@state = internal global i64 0, align 64
@sleepers = internal global i32 0, align 64
@busy = internal global i32 0, align 64
@limit = internal unnamed_addr global i32 0, align 4
@done = internal global i32 0, align 64
@total = internal unnamed_addr global i32 0, align 64
@mutex = internal global i32 0, align 4
@condition = internal global i32 0, align 4
@function = internal unnamed_addr global ptr null, align 4
@arguments = internal unnamed_addr global ptr null, align 4
@never = internal global i32 0, align 4

define hidden void @mirlo_pool_cores(ptr noundef readnone captures(none) %0, i32 noundef %1) local_unnamed_addr {
  ret void
}

define hidden void @mirlo_pool_work(i32 noundef %0) local_unnamed_addr {
  %2 = inttoptr i32 %0 to ptr
  tail call fastcc void @worker(ptr noundef %2)
  unreachable
}

define internal fastcc void @worker(ptr noundef %0) unnamed_addr {
  %2 = ptrtoint ptr %0 to i32
  br label %3

3:
  %4 = phi i32 [ 0, %1 ], [ %28, %27 ]
  %5 = load atomic i64, ptr @state seq_cst, align 64
  %6 = trunc i64 %5 to i32
  %7 = and i32 %6, 1048575
  %8 = lshr i64 %5, 20
  %9 = trunc i64 %8 to i32
  %10 = and i32 %9, 1048575
  %11 = add nuw nsw i32 %10, %7
  %12 = load atomic i32, ptr @total monotonic, align 64
  %13 = icmp ult i32 %11, %12
  br i1 %13, label %14, label %52

14:
  %15 = load atomic i32, ptr @limit monotonic, align 4
  %16 = icmp sgt i32 %15, %2
  br i1 %16, label %17, label %52

17:
  %18 = load atomic i64, ptr @state acquire, align 64
  %19 = lshr i64 %18, 20
  %20 = trunc i64 %19 to i32
  %21 = and i32 %20, 1048575
  %22 = trunc i64 %18 to i32
  %23 = and i32 %22, 1048575
  %24 = add nuw nsw i32 %21, %23
  %25 = load atomic i32, ptr @total acquire, align 64
  %26 = icmp ult i32 %24, %25
  br i1 %26, label %29, label %27

27:
  %28 = phi i32 [ %53, %52 ], [ 0, %81 ], [ 0, %17 ], [ 0, %42 ]
  br label %3

29:
  %30 = phi i32 [ %46, %42 ], [ %21, %17 ]
  %31 = phi i64 [ %43, %42 ], [ %18, %17 ]
  %32 = add i64 %31, 1048576
  %33 = cmpxchg ptr @state, i64 %31, i64 %32 acq_rel monotonic, align 64
  %34 = extractvalue { i64, i1 } %33, 1
  br i1 %34, label %35, label %42

35:
  %36 = load atomic i32, ptr @total monotonic, align 64
  %37 = load ptr, ptr @function, align 4
  %38 = load ptr, ptr @arguments, align 4
  %39 = xor i32 %30, -1
  %40 = add i32 %36, %39
  tail call void %37(ptr noundef %38, i32 noundef %40, i32 noundef %36)
  %41 = atomicrmw add ptr @done, i32 1 acq_rel, align 64
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
  br i1 %51, label %29, label %27

52:
  fence seq_cst
  %53 = add nsw i32 %4, 1
  %54 = icmp sgt i32 %4, 15999
  br i1 %54, label %55, label %27

55:
  %56 = atomicrmw xchg ptr @mutex, i32 1 seq_cst, align 4
  %57 = icmp eq i32 %56, 0
  br i1 %57, label %58, label %55

58:
  %59 = atomicrmw add ptr @sleepers, i32 1 seq_cst, align 64
  br label %60

60:
  %61 = load atomic i64, ptr @state seq_cst, align 64
  %62 = trunc i64 %61 to i32
  %63 = and i32 %62, 1048575
  %64 = lshr i64 %61, 20
  %65 = trunc i64 %64 to i32
  %66 = and i32 %65, 1048575
  %67 = add nuw nsw i32 %66, %63
  %68 = load atomic i32, ptr @total monotonic, align 64
  %69 = icmp ult i32 %67, %68
  br i1 %69, label %70, label %73

70:
  %71 = load atomic i32, ptr @limit monotonic, align 4
  %72 = icmp sgt i32 %71, %2
  br i1 %72, label %81, label %73

73:
  %74 = atomicrmw add ptr @sleeps, i32 1 monotonic, align 4
  %75 = load atomic i32, ptr @condition seq_cst, align 4
  store atomic i32 0, ptr @mutex seq_cst, align 4
  %76 = tail call i32 @llvm.wasm.memory.atomic.wait32(ptr nonnull @condition, i32 %75, i64 -1)
  br label %77

77:
  %78 = atomicrmw xchg ptr @mutex, i32 1 seq_cst, align 4
  %79 = icmp eq i32 %78, 0
  br i1 %79, label %80, label %77

80:
  br label %60

81:
  %82 = atomicrmw sub ptr @sleepers, i32 1 seq_cst, align 64
  store atomic i32 0, ptr @mutex seq_cst, align 4
  br label %27
}

define hidden void @mirlo_pool_may_sleep(i32 noundef %0) local_unnamed_addr {
  store i32 %0, ptr @may_sleep, align 4
  ret void
}

define hidden i32 @mirlo_pool_sleeps() local_unnamed_addr {
  %1 = load atomic i32, ptr @sleeps monotonic, align 4
  ret i32 %1
}

define hidden i32 @mirlo_pool_start(i32 noundef %0) local_unnamed_addr {
  %2 = load i32, ptr @workers, align 64
  %3 = icmp slt i32 %2, %0
  br i1 %3, label %4, label %8

4:
  %5 = phi i32 [ %6, %4 ], [ %2, %1 ]
  %6 = add nsw i32 %5, 1
  store atomic i32 %6, ptr @workers release, align 64
  %7 = icmp eq i32 %6, %0
  br i1 %7, label %8, label %4

8:
  %9 = phi i32 [ %2, %1 ], [ %0, %4 ]
  ret i32 %9
}

declare void @llvm.lifetime.start.p0(ptr captures(none))

declare void @llvm.lifetime.end.p0(ptr captures(none))

define hidden void @mirlo_pool_team(ptr noundef %0, ptr noundef %1) local_unnamed_addr {
  store ptr %1, ptr @team_number, align 4
  %3 = ptrtoint ptr %0 to i32
  store atomic i32 %3, ptr @team_region release, align 4
  ret void
}

define hidden void @mirlo_pool_reset() local_unnamed_addr {
  store i64 0, ptr @state, align 64
  store i32 0, ptr @workers, align 64
  store i32 0, ptr @sleepers, align 64
  store i32 0, ptr @busy, align 64
  store i32 0, ptr @limit, align 4
  store i32 0, ptr @done, align 64
  store i32 0, ptr @total, align 64
  store ptr null, ptr @team_region, align 4
  store i32 0, ptr @mutex, align 4
  store i32 0, ptr @condition, align 4
  ret void
}

define hidden void @mirlo_parallel(ptr noundef %0, ptr noundef %1, i32 noundef %2, i32 noundef %3) local_unnamed_addr {
  %5 = alloca i32, align 4
  %6 = icmp ugt i32 %3, 1
  %7 = add i32 %2, -2
  %8 = icmp ult i32 %7, 1048573
  %9 = and i1 %8, %6
  call void @llvm.lifetime.start.p0(ptr nonnull %5)
  br i1 %9, label %10, label %14

10:
  %11 = add nsw i32 %3, -1
  store i32 %11, ptr %5, align 4
  %12 = cmpxchg ptr @busy, i32 0, i32 1 acquire monotonic, align 64
  %13 = extractvalue { i32, i1 } %12, 1
  br i1 %13, label %21, label %16

14:
  %15 = icmp sgt i32 %2, 0
  br i1 %15, label %16, label %90

16:
  br label %17

17:
  %18 = phi i32 [ %19, %17 ], [ 0, %16 ]
  tail call void %0(ptr noundef %1, i32 noundef %18, i32 noundef %2)
  %19 = add nuw nsw i32 %18, 1
  %20 = icmp eq i32 %19, %2
  br i1 %20, label %90, label %17

21:
  %22 = load i32, ptr %5, align 4
  %23 = load atomic i64, ptr @state monotonic, align 64
  %24 = and i64 %23, -1099511627776
  %25 = add i64 %24, 1099511627776
  %26 = load atomic i32, ptr @team_region acquire, align 4
  %27 = or disjoint i64 %25, 1099511627775
  store atomic i64 %27, ptr @state seq_cst, align 64
  store ptr %0, ptr @function, align 4
  store ptr %1, ptr @arguments, align 4
  store atomic i32 0, ptr @done monotonic, align 64
  %28 = icmp eq i32 %26, 0
  %29 = select i1 %28, i32 %22, i32 0
  store atomic i32 %29, ptr @limit monotonic, align 4
  store atomic i32 %2, ptr @total release, align 64
  store atomic i64 %25, ptr @state seq_cst, align 64
  br i1 %28, label %32, label %30

30:
  %31 = inttoptr i32 %26 to ptr
  call void %31(ptr noundef nonnull @member, ptr noundef nonnull %5, i32 noundef 0, i32 noundef 0)
  br label %74

32:
  %33 = load atomic i32, ptr @sleepers seq_cst, align 64
  %34 = icmp eq i32 %33, 0
  br i1 %34, label %43, label %35

35:
  %36 = load atomic i32, ptr @workers acquire, align 64
  br label %37

37:
  %38 = atomicrmw xchg ptr @mutex, i32 1 seq_cst, align 4
  %39 = icmp eq i32 %38, 0
  br i1 %39, label %40, label %37

40:
  %41 = atomicrmw add ptr @condition, i32 1 seq_cst, align 4
  %42 = tail call i32 @llvm.wasm.memory.atomic.notify(ptr nonnull @condition, i32 -1)
  store atomic i32 0, ptr @mutex seq_cst, align 4
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
  br i1 %52, label %53, label %74

53:
  %54 = phi i32 [ %70, %64 ], [ %49, %43 ]
  %55 = phi i64 [ %65, %64 ], [ %44, %43 ]
  %56 = add i64 %55, 1
  %57 = cmpxchg ptr @state, i64 %55, i64 %56 acq_rel monotonic, align 64
  %58 = extractvalue { i64, i1 } %57, 1
  br i1 %58, label %59, label %64

59:
  %60 = load atomic i32, ptr @total monotonic, align 64
  %61 = load ptr, ptr @function, align 4
  %62 = load ptr, ptr @arguments, align 4
  tail call void %61(ptr noundef %62, i32 noundef %54, i32 noundef %60)
  %63 = atomicrmw add ptr @done, i32 1 acq_rel, align 64
  br label %64

64:
  %65 = load atomic i64, ptr @state acquire, align 64
  %66 = lshr i64 %65, 20
  %67 = trunc i64 %66 to i32
  %68 = and i32 %67, 1048575
  %69 = trunc i64 %65 to i32
  %70 = and i32 %69, 1048575
  %71 = add nuw nsw i32 %68, %70
  %72 = load atomic i32, ptr @total acquire, align 64
  %73 = icmp ult i32 %71, %72
  br i1 %73, label %53, label %74

74:
  br label %75

75:
  %76 = phi i32 [ 0, %74 ], [ %83, %82 ]
  %77 = load atomic i32, ptr @done acquire, align 64
  %78 = icmp eq i32 %77, %2
  br i1 %78, label %89, label %79

79:
  fence seq_cst
  %80 = add nuw nsw i32 %76, 1
  %81 = icmp eq i32 %80, 16001
  br i1 %81, label %84, label %82

82:
  %83 = phi i32 [ %80, %79 ], [ 0, %84 ], [ 0, %87 ]
  br label %75

84:
  %85 = load i32, ptr @may_sleep, align 4
  %86 = icmp eq i32 %85, 0
  br i1 %86, label %82, label %87

87:
  %88 = call i32 @llvm.wasm.memory.atomic.wait32(ptr nonnull @never, i32 0, i64 20000)
  br label %82

89:
  store atomic i32 0, ptr @busy release, align 64
  br label %90

90:
  call void @llvm.lifetime.end.p0(ptr nonnull %5)
  ret void
}

define internal void @member(ptr noundef readonly captures(none) %0) {
  %2 = load ptr, ptr @team_number, align 4
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
  %23 = load ptr, ptr @function, align 4
  %24 = load ptr, ptr @arguments, align 4
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
  %57 = load ptr, ptr @function, align 4
  %58 = load ptr, ptr @arguments, align 4
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

declare i32 @llvm.wasm.memory.atomic.wait32(ptr readonly captures(none), i32, i64)

declare i32 @llvm.wasm.memory.atomic.notify(ptr captures(none), i32)
