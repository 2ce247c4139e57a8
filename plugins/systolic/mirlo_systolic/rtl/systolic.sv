// A neural processing unit: an array of 16 x 16 multipliers of int8 that keep weights, accumulators of int32,
// requantization with a table, and copies between main memory and scratchpads. README.md describes the commands.
//
// Commands of 256 bits enter four queues in program order: loads, the array, requantization, stores. A queue executes
// its commands in order. Neighbors exchange tokens, so that queues work on two contexts at once.

module systolic (
    input  logic         clk,
    input  logic         reset,
    input  logic         command_valid,
    input  logic [255:0] command,
    output logic         command_ready,
    output logic         idle,
    output logic         busy_load,
    output logic         busy_array,
    output logic         busy_requantize,
    output logic         busy_store
);
  import "DPI-C" function void systolic_read(input int unsigned address, output bit [127:0] row);
  import "DPI-C" function void systolic_write(input int unsigned address, input bit [127:0] row, input int unsigned size);

  localparam int SIZE = 16;  // rows and columns of the array
  localparam int DATA_ROWS = 16384, WEIGHT_ROWS = 4096, PARAMETER_ROWS = 256, ACCUMULATOR_ROWS = 2048, RESULT_ROWS = 2048;
  localparam int LATENCY = 24;  // cycles of a read of main memory
  localparam int DEPTH = 64;  // commands that a queue holds
  localparam int STAGES = 2 * SIZE + 1;  // cycles from a row of data to its sums

  localparam logic [7:0] OP_LOAD = 1, OP_FILL = 2, OP_WEIGHTS = 3, OP_MULTIPLY = 4, OP_REQUANTIZE = 5, OP_TABLE = 6;
  localparam logic [7:0] OP_STORE = 7, OP_BARRIER = 8;

  logic [127:0] data[DATA_ROWS];
  logic [127:0] weights[WEIGHT_ROWS];
  logic [127:0] parameters[PARAMETER_ROWS];
  logic [SIZE-1:0][31:0] accumulators[ACCUMULATOR_ROWS];
  logic [127:0] results[RESULT_ROWS];

  // Queues: 0 loads, 1 the array, 2 requantization, 3 stores. Bits 8 to 11 of a command: wait for a token of the queue
  // before, of the queue behind, give one to the queue before, to the queue behind. Bits 12 and 13: the queue.
  logic [255:0] queue[4][DEPTH];
  logic [5:0] head[4], tail[4];
  logic [15:0] forward[3], backward[3];  // tokens between the queues i and i + 1
  logic [3:0] start, finish, running, has_command;
  logic [255:0] next[4], current[4];
  logic [1:0] gives[4];  // tokens of this cycle: to the queue behind, to the queue before

  wire [1:0] queue_of_command = command[13:12];
  wire is_barrier = command[7:0] == OP_BARRIER;
  assign idle = running == 0 && has_command == 0 && in_flight == 0 && reads_in_flight == 0;
  assign command_ready = is_barrier ? idle : 6'(tail[queue_of_command] + 1) != head[queue_of_command];

  always_comb begin
    for (int i = 0; i < 4; i++) gives[i] = finish[i] ? current[i][11:10] : 2'b00;
    if (is_product) gives[1] = 2'b00;
    gives[1] = gives[1] | token_stage[STAGES-1];
    for (int i = 0; i < 4; i++) begin
      has_command[i] = head[i] != tail[i];
      next[i] = queue[i][head[i]];
      start[i] = has_command[i] && (!running[i] || finish[i]);
      if (next[i][8] && (i == 0 || forward[(i+3)%4%3] == 0)) start[i] = 0;
      if (next[i][9] && (i == 3 || backward[i%3] == 0)) start[i] = 0;
    end
  end

  always_ff @(posedge clk) begin
    if (reset) begin
      for (int i = 0; i < 4; i++) begin
        head[i] <= 0;
        tail[i] <= 0;
      end
      for (int i = 0; i < 3; i++) begin
        forward[i]  <= 0;
        backward[i] <= 0;
      end
      running <= 0;
    end else begin
      if (command_valid && command_ready && !is_barrier) begin
        queue[queue_of_command][tail[queue_of_command]] <= command;
        tail[queue_of_command] <= tail[queue_of_command] + 1;
      end
      for (int i = 0; i < 4; i++) begin
        if (start[i]) begin
          head[i] <= head[i] + 1;
          current[i] <= next[i];
          running[i] <= 1;
        end else if (finish[i]) running[i] <= 0;
      end
      for (int i = 0; i < 3; i++) begin
        forward[i]  <= forward[i] + 16'(gives[i][1]) - 16'(start[i+1] && next[i+1][8]);
        backward[i] <= backward[i] + 16'(gives[i+1][0]) - 16'(start[i] && next[i][9]);
      end
    end
  end

  // Loads and fills: rows of up to 16 bytes in two loops. Words: 1 address, 2 row, 3 bytes | inner count << 8,
  // 4 outer count | outer row stride << 16, 5 and 6 strides in bytes, 7 memory | value << 8. ---------------------------
  logic [23:0] load_inner;
  logic [15:0] load_outer;
  logic [31:0] load_address, load_line;
  logic [15:0] load_row, load_row_line;
  logic [127:0] read_data[32];
  logic [15:0] read_row[32];
  logic [1:0] read_memory[32];
  logic [31:0] read_valid;
  logic [4:0] slot;
  logic [5:0] reads_in_flight;
  wire [255:0] load = current[0];
  wire load_is_copy = load[7:0] == OP_LOAD;
  wire load_works = running[0] && (load_is_copy || load[7:0] == OP_FILL) && load_outer != load[143:128];
  wire load_last = load_inner + 1 == load[127:104];
  logic [127:0] load_value, load_mask;
  wire [4:0] arrival = slot - 5'(LATENCY);
  // The queue behind is given a token when all rows are there.
  assign finish[0] = running[0] && !load_works && (!load[11] || reads_in_flight == 0);
  assign busy_load = load_works;

  always_comb begin
    for (int i = 0; i < SIZE; i++) load_mask[8*i+:8] = 8'(i) < load[103:96] ? 8'hff : 8'h00;
  end

  always_ff @(posedge clk) begin
    if (reset) begin
      read_valid <= 0;
      slot <= 0;
      reads_in_flight <= 0;
    end else begin
      slot <= slot + 1;
      read_valid[slot] <= load_works && load_is_copy;
      reads_in_flight <= reads_in_flight + 6'(load_works && load_is_copy) - 6'(read_valid[arrival]);
      if (start[0]) begin
        load_inner <= 0;
        load_outer <= 0;
        load_address <= next[0][63:32];
        load_line <= next[0][63:32];
        load_row <= next[0][79:64];
        load_row_line <= next[0][79:64];
      end else if (load_works) begin
        if (load_is_copy) begin
          systolic_read(load_address, load_value);
          read_data[slot] <= load_value & load_mask;
          read_row[slot] <= load_row;
          read_memory[slot] <= load[225:224];
        end else data[load_row[13:0]] <= {SIZE{load[239:232]}};
        if (load_last) begin
          load_inner <= 0;
          load_outer <= load_outer + 1;
          load_line <= load_line + load[223:192];
          load_address <= load_line + load[223:192];
          load_row_line <= load_row_line + load[159:144];
          load_row <= load_row_line + load[159:144];
        end else begin
          load_inner <= load_inner + 1;
          load_address <= load_address + load[191:160];
          load_row <= load_row + 1;
        end
      end
      if (read_valid[arrival]) begin
        case (read_memory[arrival])
          0: data[read_row[arrival][13:0]] <= read_data[arrival];
          1: weights[read_row[arrival][11:0]] <= read_data[arrival];
          default: parameters[read_row[arrival][7:0]] <= read_data[arrival];
        endcase
      end
    end
  end

  // The array. OP_WEIGHTS (words: 2 row) fills the bank that is not in use, one row a cycle, beside a product.
  // OP_MULTIPLY: 1 row of data, 2 row of accumulators, 3 inner count | outer count << 16, 4 strides of rows of data,
  // 5 mode: 0 store, 1 add, 2 maximum,
  // 6 row of the weights of the product behind | 1 << 16 if there is one | 1 << 17 to keep those of the product before.
  logic [7:0] held[2][SIZE][SIZE];
  logic signed [7:0] moving[SIZE][SIZE];  // data, which moves to the right
  logic bank_of[SIZE][SIZE];
  logic signed [31:0] partial[SIZE][SIZE];  // sums, which move down
  logic [7:0] skewed[SIZE][SIZE];
  logic skewed_bank[SIZE][SIZE];
  logic signed [31:0] aligned[SIZE][SIZE];
  logic bank, bank_filled;
  logic [5:0] draining[2];  // cycles until no product uses the rows of a bank that are filled first
  logic [4:0] fill;  // rows of weights to fill
  logic [11:0] fill_row;
  logic [15:0] multiply_inner, multiply_outer, multiply_row, multiply_line;
  logic [10:0] multiply_target;
  logic multiply_began;
  logic [STAGES-1:0] valid_stage;
  logic [STAGES-1:0][1:0] token_stage;  // to the queue behind, to the queue before
  logic [10:0] target_stage[STAGES];
  logic [1:0] mode_stage[STAGES];
  wire [255:0] product = current[1];
  wire is_product = running[1] && product[7:0] == OP_MULTIPLY;
  wire is_weights = running[1] && product[7:0] == OP_WEIGHTS;
  wire keeps = product[209];
  wire may_begin = multiply_began || bank_filled || keeps;
  wire multiplies = is_product && may_begin && multiply_outer != product[127:112];
  wire bank_now = multiply_began || keeps ? bank : !bank;
  wire may_fill = fill != 0 && draining[!bank] == 0;
  wire in_flight = |valid_stage;
  logic [127:0] entering;
  logic multiply_last;
  logic weights_taken;
  assign multiply_last = multiply_inner + 1 == product[111:96];
  wire product_ends = multiplies && multiply_last && multiply_outer + 1 == product[127:112];
  // Weights are handed to the fill at once. A product ends with its last row; the tokens that it gives follow its last sum.
  assign finish[1] = running[1] && (is_product ? product_ends : is_weights ? weights_taken : 1'b1);
  assign weights_taken = is_weights && fill == 0 && !bank_filled;
  assign busy_array = multiplies;
  assign entering = data[multiply_row[13:0]];

  always_ff @(posedge clk) begin
    if (reset) begin
      bank <= 0;
      bank_filled <= 0;
      fill <= 0;
      draining[0] <= 0;
      draining[1] <= 0;
      valid_stage <= 0;
      token_stage <= 0;
    end else begin
      for (int i = 0; i < 2; i++) if (draining[i] != 0) draining[i] <= draining[i] - 1;
      if (weights_taken) begin
        fill <= 16;
        fill_row <= product[75:64];
      end else if (may_fill) begin
        for (int c = 0; c < SIZE; c++) held[!bank][16-fill][c] <= weights[fill_row][8*c+:8];
        fill <= fill - 1;
        fill_row <= fill_row + 1;
        if (fill == 1) bank_filled <= 1;
      end
      if (multiplies) begin
        draining[bank_now] <= 6'(SIZE - 1);
        if (!multiply_began) begin
          multiply_began <= !product_ends;
          if (!keeps) begin
            bank <= !bank;
            bank_filled <= 0;
          end
          if (!keeps || product[208]) begin
            fill <= product[208] ? 16 : 0;
            fill_row <= product[203:192];
          end
        end
        multiply_target <= multiply_target + 1;
        if (multiply_last) begin
          multiply_inner <= 0;
          multiply_outer <= multiply_outer + 1;
          multiply_line <= multiply_line + product[159:144];
          multiply_row <= multiply_line + product[159:144];
        end else begin
          multiply_inner <= multiply_inner + 1;
          multiply_row <= multiply_row + product[143:128];
        end
      end
      if (start[1]) begin
        multiply_inner <= 0;
        multiply_outer <= 0;
        multiply_row <= next[1][47:32];
        multiply_line <= next[1][47:32];
        multiply_target <= next[1][74:64];
        multiply_began <= 0;
      end
      valid_stage <= {valid_stage[STAGES-2:0], multiplies};
      token_stage <= {token_stage[STAGES-2:0], product_ends ? product[11:10] : 2'b00};
    end
    target_stage[0] <= multiply_target;
    mode_stage[0] <= product[161:160];
    for (int i = 1; i < STAGES; i++) begin
      target_stage[i] <= target_stage[i-1];
      mode_stage[i] <= mode_stage[i-1];
    end
  end

  // The array itself. Registers are assigned from the last stage to the first, so that each reads what its neighbor had.
  always_ff @(posedge clk) begin
    if (valid_stage[STAGES-1]) begin
      for (int c = 0; c < SIZE; c++) begin
        logic signed [31:0] sum, previous;
        sum = aligned[c][SIZE-1-c];
        previous = accumulators[target_stage[STAGES-1]][c];
        if (mode_stage[STAGES-1] == 1) sum = sum + previous;
        else if (mode_stage[STAGES-1] == 2 && previous > sum) sum = previous;
        accumulators[target_stage[STAGES-1]][c] = sum;
      end
    end
    if (|valid_stage || multiplies) begin
      for (int c = 0; c < SIZE; c++) begin
        for (int i = SIZE - 1; i > 0; i--) if (i < SIZE - c) aligned[c][i] = aligned[c][i-1];
        aligned[c][0] = partial[SIZE-1][c];
      end
      for (int r = SIZE - 1; r >= 0; r--) begin
        for (int c = 0; c < SIZE; c++) begin
          logic signed [31:0] above;
          above = r == 0 ? 0 : partial[4'(r-1)][c];
          partial[r][c] = above + 32'(moving[r][c]) * 32'($signed(held[bank_of[r][c]][r][c]));
        end
        for (int c = SIZE - 1; c > 0; c--) begin
          moving[r][c] = moving[r][c-1];
          bank_of[r][c] = bank_of[r][c-1];
        end
        moving[r][0] = r == 0 ? entering[7:0] : skewed[r][4'(r-1)];
        bank_of[r][0] = r == 0 ? bank_now : skewed_bank[r][4'(r-1)];
        for (int i = SIZE - 1; i > 0; i--) begin
          if (i < r) begin
            skewed[r][i] = skewed[r][i-1];
            skewed_bank[r][i] = skewed_bank[r][i-1];
          end
        end
        skewed[r][0] = entering[8*r+:8];
        skewed_bank[r][0] = bank_now;
      end
    end
  end

  // Requantization: round_half_to_even((a * first + b * second + addend) / 2^shift) + zero point, within limits, then
  // the table. Words: 1 row of accumulators a, 2 row of b, 3 count | parameters << 16, 4 row of results, 5 zero point,
  // minimum, maximum, flags (1: there is b, 2: table). Parameters of a column: two rows, first, second, shift; addend.
  logic [15:0] requantize_index;
  logic [7:0] table_of[256];
  logic [31:0] first[SIZE], second[SIZE];
  logic [63:0] addend[SIZE];
  logic [5:0] shift[SIZE];
  logic [6:0] prepare;
  wire [255:0] requantize = current[2];
  wire is_requantize = running[2] && requantize[7:0] == OP_REQUANTIZE;
  wire is_table = running[2] && requantize[7:0] == OP_TABLE;
  wire has_second = requantize[184], has_table = requantize[185];
  wire prepares = prepare != (is_table ? 7'd16 : 7'd32);
  assign finish[2] = running[2] && (is_requantize ? !prepares && requantize_index + 1 == requantize[111:96] : is_table ? !prepares : 1'b1);
  assign busy_requantize = is_requantize;
  logic [127:0] requantized;
  logic signed [63:0] total, quotient, remainder, half;
  logic signed [31:0] rounded;
  wire [127:0] parameter_row = parameters[8'(requantize[119:112] + 8'(prepare))];
  wire [10:0] row_a = requantize[42:32] + requantize_index[10:0], row_b = requantize[74:64] + requantize_index[10:0];

  always_comb begin
    requantized = 0;
    total = 0; quotient = 0; remainder = 0; half = 0; rounded = 0;
    if (is_requantize && !prepares) begin
      for (int c = 0; c < SIZE; c++) begin
        total = 64'($signed(accumulators[row_a][c])) * 64'($signed(first[c])) + $signed(addend[c]);
        if (has_second) total = total + 64'($signed(accumulators[row_b][c])) * 64'($signed(second[c]));
        quotient = total >>> shift[c];
        remainder = total - (quotient <<< shift[c]);
        half = shift[c] == 0 ? 64'sd1 : 64'sd1 <<< (shift[c] - 1);
        if (remainder > half || (remainder == half && quotient[0])) quotient = quotient + 1;
        quotient = quotient + 64'($signed(requantize[167:160]));
        if (quotient < 64'($signed(requantize[175:168]))) quotient = 64'($signed(requantize[175:168]));
        if (quotient > 64'($signed(requantize[183:176]))) quotient = 64'($signed(requantize[183:176]));
        requantized[8*c+:8] = has_table ? table_of[quotient[7:0]] : quotient[7:0];
      end
    end
  end

  always_ff @(posedge clk) begin
    if (start[2]) begin
      requantize_index <= 0;
      prepare <= 0;
    end else if (running[2] && prepares) begin
      prepare <= prepare + 1;
      if (is_table) for (int i = 0; i < SIZE; i++) table_of[{prepare[3:0], i[3:0]}] <= parameter_row[8*i+:8];
      else if (prepare[0]) addend[prepare[4:1]] <= parameter_row[63:0];
      else begin
        first[prepare[4:1]] <= parameter_row[31:0];
        second[prepare[4:1]] <= parameter_row[63:32];
        shift[prepare[4:1]] <= parameter_row[69:64];
      end
    end
    if (is_requantize && !prepares) begin
      results[11'(requantize[138:128] + requantize_index[10:0])] <= requantized;
      if (!start[2]) requantize_index <= requantize_index + 1;
    end
  end

  // Stores: the words of a load. -------------------------------------------------------------------------------------
  logic [23:0] store_inner;
  logic [15:0] store_outer;
  logic [31:0] store_address, store_line;
  logic [15:0] store_row;
  wire [255:0] store = current[3];
  wire store_works = running[3] && store[7:0] == OP_STORE && store_outer != store[143:128];
  wire store_last = store_inner + 1 == store[127:104];
  assign finish[3] = running[3] && !store_works;
  assign busy_store = store_works;

  always_ff @(posedge clk) begin
    if (start[3]) begin
      store_inner <= 0;
      store_outer <= 0;
      store_address <= next[3][63:32];
      store_line <= next[3][63:32];
      store_row <= next[3][79:64];
    end else if (store_works) begin
      systolic_write(store_address, results[store_row[10:0]], 32'(store[103:96]));
      store_row <= store_row + 1;
      if (store_last) begin
        store_inner <= 0;
        store_outer <= store_outer + 1;
        store_line <= store_line + store[223:192];
        store_address <= store_line + store[223:192];
      end else begin
        store_inner <= store_inner + 1;
        store_address <= store_address + store[191:160];
      end
    end
  end
endmodule
