; The short way of a call, as Python sees a function of C: it checks the arrays, asks the model for the sizes of this call,
; makes the arrays of the results, and calls the entry function without Python's lock. It returns a tuple of the results;
; False where the long way has to explain what is wrong; or the bytes that the arena must have, where it is too small.
; Words in capitals are replaced by numbers before this is compiled.
;
; %self is a bytes object, numbers of 64 bits:
;   0 the entry function        2 how many inputs      4 words of the call record, 0 without one
;   1 its weights               3 how many outputs     5 word of the record with the size of the arena, 0 if it is fixed
;   6 whether it asks for memory while it runs
;   7 where the first spare block is: memory of the call before, that the next one takes
;   8... of each input its element type (the address of the dtype), its rank and its dims,
;   then of each output its element type, the bytes of an element, whether the model asks for its memory, its rank and dims.
; A dim of n < 0 is word -n of the record.
; Memory that the model asks for is in blocks: [the next block, bytes, whether it became an output], then its elements from
; the next multiple of 64 on. Before the record stand the first block, the first spare one, then the block of each output.
; Large blocks that became no output are kept for the next call: new memory takes a fault for each of its pages.
; %args are the inputs, the address of the arena or 0, and its size in bytes.

declare { i64, i1 } @llvm.umul.with.overflow.i64(i64, i64)

define ptr @mirlo_call(ptr %self, ptr %args, i64 %count) {
entry:
  %state = getelementptr i8, ptr %self, i64 BYTES_DATA
  %inputs_p = getelementptr i64, ptr %state, i64 2
  %inputs = load i64, ptr %inputs_p
  %outputs_p = getelementptr i64, ptr %state, i64 3
  %outputs = load i64, ptr %outputs_p
  %words_p = getelementptr i64, ptr %state, i64 4
  %words = load i64, ptr %words_p
  %arena_word_p = getelementptr i64, ptr %state, i64 5
  %arena_word = load i64, ptr %arena_word_p
  %allocates_p = getelementptr i64, ptr %state, i64 6
  %allocates = load i64, ptr %allocates_p
  %spare_at_p = getelementptr i64, ptr %state, i64 7
  %spare_at = load ptr, ptr %spare_at_p
  %first = getelementptr i64, ptr %state, i64 8
  %params_p = getelementptr i64, ptr %state, i64 1
  %params = load ptr, ptr %params_p
  %function = load ptr, ptr %state
  %tensors = add i64 %inputs, %outputs
  %places = add i64 %tensors, 1
  %wanted = add i64 %inputs, 2
  %fits = icmp eq i64 %count, %wanted
  %pointers = alloca ptr, i64 %places
  %before = add i64 %outputs, 2
  %all_words = add i64 %before, %words
  %words_at = alloca i64, i64 %all_words
  %record = getelementptr i64, ptr %words_at, i64 %before
  %blocks_p = getelementptr i64, ptr %record, i64 -1
  %spare_p = getelementptr i64, ptr %record, i64 -2
  ; The pointer behind the outputs is that of the record; null where there is none.
  %has_record = icmp ne i64 %words, 0
  %record_or_null = select i1 %has_record, ptr %record, ptr null
  %record_slot = getelementptr ptr, ptr %pointers, i64 %tensors
  store ptr %record_or_null, ptr %record_slot
  br i1 %fits, label %unbound, label %no

unbound:
  ; No word holds a size yet: -1.
  %w = phi i64 [ 0, %entry ], [ %w1, %clear ]
  %uncleared = icmp ult i64 %w, %all_words
  br i1 %uncleared, label %clear, label %allocator
clear:
  %w_p = getelementptr i64, ptr %words_at, i64 %w
  %head = add i64 %before, FIRST_WORD
  %is_head = icmp ult i64 %w, %head
  %cleared = select i1 %is_head, i64 0, i64 -1
  store i64 %cleared, ptr %w_p
  %w1 = add i64 %w, 1
  br label %unbound
allocator:
  %asks = icmp ne i64 %allocates, 0
  br i1 %asks, label %set_allocator, label %next
set_allocator:
  %last = sub i64 %words, 1
  %last_p = getelementptr i64, ptr %record, i64 %last
  store ptr @allocate, ptr %last_p
  br label %next

next:
  %i = phi i64 [ 0, %allocator ], [ 0, %set_allocator ], [ %following, %same_dims ]
  %spec = phi ptr [ %first, %allocator ], [ %first, %set_allocator ], [ %after, %same_dims ]
  %more = icmp ult i64 %i, %inputs
  br i1 %more, label %look, label %bound
look:
  %slot = getelementptr ptr, ptr %args, i64 %i
  %array = load ptr, ptr %slot
  %kind_p = getelementptr i8, ptr %array, i64 TYPE
  %kind = load i64, ptr %kind_p
  %is_array = icmp eq i64 %kind, NDARRAY
  br i1 %is_array, label %has_fields, label %no
has_fields:
  %dtype_p = getelementptr i8, ptr %array, i64 DTYPE
  %dtype = load i64, ptr %dtype_p
  %want_dtype = load i64, ptr %spec
  %same_dtype = icmp eq i64 %dtype, %want_dtype
  %rank_p = getelementptr i8, ptr %array, i64 RANK
  %rank32 = load i32, ptr %rank_p
  %rank = sext i32 %rank32 to i64
  %want_rank_p = getelementptr i64, ptr %spec, i64 1
  %want_rank = load i64, ptr %want_rank_p
  %same_rank = icmp eq i64 %rank, %want_rank
  %flags_p = getelementptr i8, ptr %array, i64 FLAGS
  %flags = load i32, ptr %flags_p
  %bits = and i32 %flags, READABLE
  %readable = icmp eq i32 %bits, READABLE
  %both = and i1 %same_dtype, %same_rank
  %all = and i1 %both, %readable
  br i1 %all, label %shape, label %no
shape:
  %dims_p = getelementptr i8, ptr %array, i64 DIMS
  %dims = load ptr, ptr %dims_p
  %want_dims = getelementptr i64, ptr %spec, i64 2
  %after = getelementptr i64, ptr %want_dims, i64 %rank
  br label %dim
dim:
  %d = phi i64 [ 0, %shape ], [ %d1, %fixed ], [ %d1, %bind ]
  %left = icmp ult i64 %d, %rank
  br i1 %left, label %compare, label %same_dims
compare:
  %dim_p = getelementptr i64, ptr %dims, i64 %d
  %size = load i64, ptr %dim_p
  %want_dim_p = getelementptr i64, ptr %want_dims, i64 %d
  %want_size = load i64, ptr %want_dim_p
  %d1 = add i64 %d, 1
  %is_symbol = icmp slt i64 %want_size, 0
  br i1 %is_symbol, label %symbol, label %fixed
fixed:
  %same_size = icmp eq i64 %size, %want_size
  br i1 %same_size, label %dim, label %no
symbol:
  %word = sub i64 0, %want_size
  %word_p = getelementptr i64, ptr %record, i64 %word
  %known = load i64, ptr %word_p
  %is_new = icmp eq i64 %known, -1
  %same_known = icmp eq i64 %known, %size
  %may_bind = or i1 %is_new, %same_known
  br i1 %may_bind, label %bind, label %no
bind:
  store i64 %size, ptr %word_p
  br label %dim
same_dims:
  %data_p = getelementptr i8, ptr %array, i64 DATA
  %data = load ptr, ptr %data_p
  %pointer = getelementptr ptr, ptr %pointers, i64 %i
  store ptr %data, ptr %pointer
  %following = add i64 %i, 1
  br label %next

bound:
  %arena_p = getelementptr ptr, ptr %args, i64 %inputs
  %arena_number = load ptr, ptr %arena_p
  %arena = call ptr inttoptr (i64 AS_POINTER to ptr)(ptr %arena_number)
  %is_dynamic = icmp ne i64 %arena_word, 0
  br i1 %is_dynamic, label %measure, label %make
measure:
  ; Without tensors the entry function checks the sizes of the inputs, and writes those of the arena and the outputs.
  call void %function(ptr null, ptr null, ptr %record, ptr null)
  %complaint = load i64, ptr %record
  %no_complaint = icmp eq i64 %complaint, 0
  br i1 %no_complaint, label %room, label %no
room:
  %needs_p = getelementptr i64, ptr %record, i64 %arena_word
  %needs = load i64, ptr %needs_p
  %place_of_size = add i64 %inputs, 1
  %has_p = getelementptr ptr, ptr %args, i64 %place_of_size
  %has_number = load ptr, ptr %has_p
  %has_pointer = call ptr inttoptr (i64 AS_POINTER to ptr)(ptr %has_number)
  %has = ptrtoint ptr %has_pointer to i64
  %enough = icmp sle i64 %needs, %has
  br i1 %enough, label %make, label %grow
grow:
  %needs_object = call ptr inttoptr (i64 FROM_NUMBER to ptr)(i64 %needs)
  ret ptr %needs_object

make:
  %results = call ptr inttoptr (i64 NEW_TUPLE to ptr)(i64 %outputs)
  %no_results = icmp eq ptr %results, null
  br i1 %no_results, label %error, label %next_output
next_output:
  %o = phi i64 [ 0, %make ], [ %o1, %placed ]
  %out = phi ptr [ %spec, %make ], [ %out_after, %placed ]
  %has_output = icmp ult i64 %o, %outputs
  br i1 %has_output, label %output, label %run
output:
  %late_p = getelementptr i64, ptr %out, i64 2
  %late = load i64, ptr %late_p
  %out_rank_p = getelementptr i64, ptr %out, i64 3
  %out_rank = load i64, ptr %out_rank_p
  %out_size = add i64 %out_rank, 4
  %out_after = getelementptr i64, ptr %out, i64 %out_size
  %place = add i64 %inputs, %o
  %result_pointer = getelementptr ptr, ptr %pointers, i64 %place
  store ptr null, ptr %result_pointer
  %is_late = icmp ne i64 %late, 0
  br i1 %is_late, label %placed, label %early
early:
  %result = call ptr @new_output(ptr %out, ptr %record, ptr null)
  %failed = icmp eq ptr %result, null
  br i1 %failed, label %drop, label %made
made:
  %set = call i32 inttoptr (i64 SET_ITEM to ptr)(ptr %results, i64 %o, ptr %result)
  %result_data_p = getelementptr i8, ptr %result, i64 DATA
  %result_data = load ptr, ptr %result_data_p
  store ptr %result_data, ptr %result_pointer
  br label %placed
placed:
  %o1 = add i64 %o, 1
  br label %next_output

run:
  br i1 %asks, label %take_spare, label %enter
take_spare:
  ; A call has the spare blocks for itself. Python's lock is still held.
  %spare = load ptr, ptr %spare_at
  store ptr null, ptr %spare_at
  store ptr %spare, ptr %spare_p
  br label %enter
enter:
  %thread = call ptr inttoptr (i64 SAVE_THREAD to ptr)()
  call void %function(ptr %pointers, ptr %params, ptr %arena, ptr null)
  call void inttoptr (i64 RESTORE_THREAD to ptr)(ptr %thread)
  br i1 %has_record, label %verify, label %done
verify:
  ; What data tells may be wrong as well, and conditions may not hold.
  %late_complaint = load i64, ptr %record
  %no_late_complaint = icmp eq i64 %late_complaint, 0
  br i1 %no_late_complaint, label %done, label %drop
done:
  br i1 %asks, label %next_late, label %finish
next_late:
  %l = phi i64 [ 0, %done ], [ %l1, %kept ]
  %late_spec = phi ptr [ %spec, %done ], [ %late_after, %kept ]
  %late_left = icmp ult i64 %l, %outputs
  br i1 %late_left, label %late_output, label %finish
late_output:
  %asked_p = getelementptr i64, ptr %late_spec, i64 2
  %asked = load i64, ptr %asked_p
  %late_rank_p = getelementptr i64, ptr %late_spec, i64 3
  %late_rank = load i64, ptr %late_rank_p
  %late_size = add i64 %late_rank, 4
  %late_after = getelementptr i64, ptr %late_spec, i64 %late_size
  %l1 = add i64 %l, 1
  %was_asked = icmp ne i64 %asked, 0
  br i1 %was_asked, label %with_block, label %kept
with_block:
  %block_word = sub i64 -3, %l
  %block_p = getelementptr ptr, ptr %record, i64 %block_word
  %block = load ptr, ptr %block_p
  %no_block = icmp eq ptr %block, null
  br i1 %no_block, label %drop, label %late_array
late_array:
  %late_result = call ptr @new_output(ptr %late_spec, ptr %record, ptr %block)
  %late_failed = icmp eq ptr %late_result, null
  br i1 %late_failed, label %drop, label %late_made
late_made:
  %late_set = call i32 inttoptr (i64 SET_ITEM to ptr)(ptr %results, i64 %l, ptr %late_result)
  br label %kept
kept:
  br label %next_late
finish:
  call void @keep_blocks(ptr %blocks_p, ptr %spare_p, ptr %spare_at)
  ret ptr %results

drop:
  call void inttoptr (i64 CLEAR_ERROR to ptr)()
  call void inttoptr (i64 DECREF to ptr)(ptr %results)
  call void @keep_blocks(ptr %blocks_p, ptr %spare_p, ptr %spare_at)
  br label %no
no:
  call void inttoptr (i64 INCREF to ptr)(ptr inttoptr (i64 FALSE to ptr))
  ret ptr inttoptr (i64 FALSE to ptr)
error:
  ret ptr null
}

; A new array, not initialized; it starts on a cache line where it has ALIGNED_FROM bytes or more. Null with Python's error set.
define internal ptr @new_array(ptr %dtype, i64 %rank, ptr %dims, i64 %bytes) {
entry:
  %rank32 = trunc i64 %rank to i32
  %is_small = icmp ult i64 %bytes, ALIGNED_FROM
  br i1 %is_small, label %small, label %large
small:
  ; Both functions of NumPy take over a reference to the type.
  call void inttoptr (i64 INCREF to ptr)(ptr %dtype)
  %array = call ptr inttoptr (i64 NEW_EMPTY to ptr)(i32 %rank32, ptr %dims, ptr %dtype, i32 0)
  ret ptr %array
large:
  ; NumPy refuses a length that wraps to a negative one.
  %length = add i64 %bytes, 64
  %length_p = alloca i64
  store i64 %length, ptr %length_p
  call void inttoptr (i64 INCREF to ptr)(ptr inttoptr (i64 BYTE_TYPE to ptr))
  %memory = call ptr inttoptr (i64 NEW_EMPTY to ptr)(i32 1, ptr %length_p, ptr inttoptr (i64 BYTE_TYPE to ptr), i32 0)
  %no_memory = icmp eq ptr %memory, null
  br i1 %no_memory, label %none, label %view
view:
  %data_p = getelementptr i8, ptr %memory, i64 DATA
  %data = load i64, ptr %data_p
  %behind = add i64 %data, 63
  %start = and i64 %behind, -64
  %start_p = inttoptr i64 %start to ptr
  call void inttoptr (i64 INCREF to ptr)(ptr %dtype)
  %aligned = call ptr inttoptr (i64 NEW_FROM_MEMORY to ptr)(ptr inttoptr (i64 NDARRAY to ptr), ptr %dtype, i32 %rank32, ptr %dims, ptr null, ptr %start_p, i32 CARRAY, ptr null)
  %no_view = icmp eq ptr %aligned, null
  br i1 %no_view, label %release, label %own
own:
  %set = call i32 inttoptr (i64 SET_BASE to ptr)(ptr %aligned, ptr %memory)
  ret ptr %aligned
release:
  call void inttoptr (i64 DECREF to ptr)(ptr %memory)
  br label %none
none:
  ret ptr null
}

; The array of an output of the sizes in the record: over a block of memory, or new where that is null. Null if it cannot be,
; with Python's error set or without one.
define internal ptr @new_output(ptr %spec, ptr %record, ptr %block) {
entry:
  %made_dims = alloca i64, i64 MOST_DIMS
  %dtype = load ptr, ptr %spec
  %item_p = getelementptr i64, ptr %spec, i64 1
  %item = load i64, ptr %item_p
  %rank_p = getelementptr i64, ptr %spec, i64 3
  %rank = load i64, ptr %rank_p
  %rank32 = trunc i64 %rank to i32
  %dims = getelementptr i64, ptr %spec, i64 4
  br label %dim
dim:
  %e = phi i64 [ 0, %entry ], [ %e1, %multiplied ]
  %bytes = phi i64 [ %item, %entry ], [ %product, %multiplied ]
  %dims_left = icmp ult i64 %e, %rank
  br i1 %dims_left, label %read, label %array
read:
  %dim_p = getelementptr i64, ptr %dims, i64 %e
  %given = load i64, ptr %dim_p
  %is_word = icmp slt i64 %given, 0
  br i1 %is_word, label %from_record, label %sized
from_record:
  %word = sub i64 0, %given
  %word_p = getelementptr i64, ptr %record, i64 %word
  %in_record = load i64, ptr %word_p
  br label %sized
sized:
  %length = phi i64 [ %given, %read ], [ %in_record, %from_record ]
  %to_p = getelementptr i64, ptr %made_dims, i64 %e
  store i64 %length, ptr %to_p
  %multiplication = call { i64, i1 } @llvm.umul.with.overflow.i64(i64 %bytes, i64 %length)
  %product = extractvalue { i64, i1 } %multiplication, 0
  %overflows = extractvalue { i64, i1 } %multiplication, 1
  %signs = or i64 %length, %product
  %is_negative = icmp slt i64 %signs, 0
  %is_wrong = or i1 %overflows, %is_negative
  br i1 %is_wrong, label %none, label %multiplied
multiplied:
  %e1 = add i64 %e, 1
  br label %dim
array:
  %has_block = icmp ne ptr %block, null
  br i1 %has_block, label %over, label %unmade
unmade:
  %is_large = icmp uge i64 %bytes, LARGE_BYTES
  br i1 %is_large, label %none, label %new
new:
  %made = call ptr @new_array(ptr %dtype, i64 %rank, ptr %made_dims, i64 %bytes)
  ret ptr %made
over:
  %size_p = getelementptr i64, ptr %block, i64 1
  %size = load i64, ptr %size_p
  %fits = icmp sle i64 %bytes, %size
  br i1 %fits, label %own, label %none
own:
  ; The block is the array's from here on: it goes when the object does that owns it.
  %owner = call ptr inttoptr (i64 NEW_CAPSULE to ptr)(ptr %block, ptr null, ptr @release_capsule)
  %no_owner = icmp eq ptr %owner, null
  br i1 %no_owner, label %none, label %view
view:
  %taken_p = getelementptr i64, ptr %block, i64 2
  store i64 1, ptr %taken_p
  %data = call ptr @elements_of(ptr %block)
  call void inttoptr (i64 INCREF to ptr)(ptr %dtype)
  %result = call ptr inttoptr (i64 NEW_FROM_MEMORY to ptr)(ptr inttoptr (i64 NDARRAY to ptr), ptr %dtype, i32 %rank32, ptr %made_dims, ptr null, ptr %data, i32 CARRAY, ptr null)
  %no_result = icmp eq ptr %result, null
  br i1 %no_result, label %release, label %keep
keep:
  %set = call i32 inttoptr (i64 SET_BASE to ptr)(ptr %result, ptr %owner)
  ret ptr %result
release:
  call void inttoptr (i64 DECREF to ptr)(ptr %owner)
  br label %none
none:
  ret ptr null
}

define internal ptr @elements_of(ptr %block) {
  %start = ptrtoint ptr %block to i64
  %behind = add i64 %start, 87
  %aligned = and i64 %behind, -64
  %elements = inttoptr i64 %aligned to ptr
  ret ptr %elements
}

; What a model calls for memory of sizes that data tells, without Python's lock; null where there is none, or so much is
; asked for that the long way must look whether there is. The record then says that the call failed.
define internal ptr @allocate(ptr %record, i64 %number, i64 %bytes) {
entry:
  %is_wrong = icmp uge i64 %bytes, LARGE_BYTES
  br i1 %is_wrong, label %none, label %new
new:
  ; Arrays of outputs have memory of their own, no more than they need.
  %is_inside = icmp slt i64 %number, 0
  %is_large = icmp uge i64 %bytes, KEPT_BYTES
  %may_reuse = and i1 %is_inside, %is_large
  br i1 %may_reuse, label %search, label %fresh
search:
  %spare_p = getelementptr i64, ptr %record, i64 -2
  %most = shl i64 %bytes, 1
  br label %next
next:
  ; A block begins with the pointer to the next one.
  %link_p = phi ptr [ %spare_p, %search ], [ %spare, %look ]
  %spare = load ptr, ptr %link_p
  %is_last = icmp eq ptr %spare, null
  br i1 %is_last, label %fresh, label %look
look:
  %spare_bytes_p = getelementptr i64, ptr %spare, i64 1
  %spare_bytes = load i64, ptr %spare_bytes_p
  %is_enough = icmp uge i64 %spare_bytes, %bytes
  %is_near = icmp ule i64 %spare_bytes, %most
  %suits = and i1 %is_enough, %is_near
  br i1 %suits, label %reuse, label %next
reuse:
  %after_spare = load ptr, ptr %spare
  store ptr %after_spare, ptr %link_p
  br label %link
fresh:
  %whole = add i64 %bytes, 88
  %made = call ptr inttoptr (i64 NEW_MEMORY to ptr)(i64 %whole)
  %no_block = icmp eq ptr %made, null
  br i1 %no_block, label %none, label %link
link:
  %block = phi ptr [ %spare, %reuse ], [ %made, %fresh ]
  %capacity = phi i64 [ %spare_bytes, %reuse ], [ %bytes, %fresh ]
  %first_p = getelementptr i64, ptr %record, i64 -1
  %first = load ptr, ptr %first_p
  store ptr %first, ptr %block
  store ptr %block, ptr %first_p
  %size_p = getelementptr i64, ptr %block, i64 1
  store i64 %capacity, ptr %size_p
  %taken_p = getelementptr i64, ptr %block, i64 2
  store i64 0, ptr %taken_p
  %is_output = icmp sge i64 %number, 0
  br i1 %is_output, label %output, label %done
output:
  %word = sub i64 -3, %number
  %word_p = getelementptr i64, ptr %record, i64 %word
  store ptr %block, ptr %word_p
  br label %done
done:
  %elements = call ptr @elements_of(ptr %block)
  ret ptr %elements
none:
  store i64 -1, ptr %record
  ret ptr null
}

; Keep the large blocks that became no output as the spare ones, and give back the others, and those spare before.
define internal void @keep_blocks(ptr %first, ptr %spare_p, ptr %spare_at) {
entry:
  %start = load ptr, ptr %first
  br label %next
next:
  %block = phi ptr [ %start, %entry ], [ %following, %done ]
  %kept = phi ptr [ null, %entry ], [ %kept_now, %done ]
  %more = icmp ne ptr %block, null
  br i1 %more, label %look, label %exchange
look:
  %following = load ptr, ptr %block
  %taken_p = getelementptr i64, ptr %block, i64 2
  %taken = load i64, ptr %taken_p
  %is_taken = icmp ne i64 %taken, 0
  br i1 %is_taken, label %done, label %measure
measure:
  %bytes_p = getelementptr i64, ptr %block, i64 1
  %bytes = load i64, ptr %bytes_p
  %is_large = icmp uge i64 %bytes, KEPT_BYTES
  br i1 %is_large, label %keep, label %release
keep:
  store ptr %kept, ptr %block
  br label %done
release:
  call void inttoptr (i64 RELEASE_MEMORY to ptr)(ptr %block)
  br label %done
done:
  %kept_now = phi ptr [ %kept, %look ], [ %block, %keep ], [ %kept, %release ]
  br label %next
exchange:
  ; A call of another thread may have left blocks meanwhile.
  %unused = load ptr, ptr %spare_p
  call void @release_all(ptr %unused)
  %others = load ptr, ptr %spare_at
  store ptr %kept, ptr %spare_at
  call void @release_all(ptr %others)
  ret void
}

define internal void @release_all(ptr %start) {
entry:
  br label %next
next:
  %block = phi ptr [ %start, %entry ], [ %following, %look ]
  %more = icmp ne ptr %block, null
  br i1 %more, label %look, label %done
look:
  %following = load ptr, ptr %block
  call void inttoptr (i64 RELEASE_MEMORY to ptr)(ptr %block)
  br label %next
done:
  ret void
}

define internal void @release_capsule(ptr %capsule) {
  %block = call ptr inttoptr (i64 CAPSULE_POINTER to ptr)(ptr %capsule, ptr null)
  call void inttoptr (i64 RELEASE_MEMORY to ptr)(ptr %block)
  ret void
}
