/* The parts of the runner, `mirlo remote`: a program for boards without Python. It takes a model from a host over a socket, runs,
 * times and profiles it. docs/boards.md has the protocol and what the token protects. C11 and POSIX. */
#ifndef MIRLO_RUNNER_H
#define MIRLO_RUNNER_H

#include <signal.h>
#include <stddef.h>
#include <stdint.h>

#define VERSION 1
#define MAX_PAYLOAD ((size_t)1 << 20) /* of a frame: nothing is allocated by a length that a peer sends */
#define GREETING_BYTES 48             /* magic, version, state, nonce */
#define NONCE_BYTES 32
#define DIGEST_BYTES 32
#define MAX_TOKEN 256
#define MIN_TOKEN 16
#define MAX_MODELS 64
#define MAX_CALLS 1000000u
#define MAX_STAMPS 1000000u

enum { READY = 0, BUSY = 1 }; /* states of a greeting */
enum { START = 1, FEATURES, LOAD, DATA, INPUTS, RUN, FREE, OK = 64, FAILED, PART, REFUSED };
/* Of FAILED: the peer broke the protocol, a limit of the runner, the model, its process ended, it took too long. */
enum { BAD_FRAME = 1, LIMIT, MODEL, CRASH, TIMEOUT };
enum { WANT_OUTPUTS = 1, CPU_TIME = 2 }; /* flags of RUN */

extern volatile sig_atomic_t is_ending; /* set by a signal (runner.c) */
#define LOOK_MS 500                     /* a wait is as long before the next look at it, as a signal may come before a wait begins */

/* Frames (runner_wire.c) */

typedef struct {
  int socket;
  int idle_ms;  /* at most so long for the next bytes */
  size_t limit; /* of a payload that is received, at most MAX_PAYLOAD */
  uint8_t keys[2][DIGEST_BYTES]; /* of what is received, and of what is sent */
  uint64_t counts[2];
  uint32_t kind;
  size_t bytes;
  uint8_t payload[MAX_PAYLOAD + 1]; /* a text that was received ends with 0 */
} wire;

void derive_key(uint8_t key[DIGEST_BYTES], const char *token, const char *label, const uint8_t *board, const uint8_t *host);
int read_exactly(int socket, void *to, size_t bytes, int timeout_ms); /* 0; not 0: the peer is gone, or too slow */
int write_exactly(int socket, const void *from, size_t bytes);
int receive(wire *w); /* 0: a frame whose tag is right is in `payload`; 1: the peer is gone; 2: the frame is no frame, or not the peer's */
int reply(wire *w, uint32_t kind, const void *payload, size_t bytes);
int reply_failure(wire *w, uint32_t code, const char *text);
uint32_t read_u32(const uint8_t *from);
uint64_t read_u64(const uint8_t *from);
void write_u32(uint8_t *to, uint32_t value);
void write_u64(uint8_t *to, uint64_t value);

/* The process of a model (runner_model.c) */

typedef struct {
  uint32_t kind, calls, warm, stamps, flags;
  uint64_t pause_ns, bytes;
} order;

typedef struct {
  int32_t failed;
  char message[508];
  uint64_t bytes; /* of the results */
} answer;

/* Open the model of a library, then execute the orders that come from a socket; does not return. Inputs and results are files. */
_Noreturn void run_model(int orders, int inputs, int results, const char *library, const char *weights, int32_t threads);

#endif
