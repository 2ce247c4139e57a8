/* Frames between a host and the runner: kind, length, payload, and a tag by SHA-256 and HMAC (FIPS 180-4, RFC 2104). */
#include "runner.h"

#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#ifndef MSG_NOSIGNAL
#define MSG_NOSIGNAL 0 /* SIGPIPE is ignored */
#endif

typedef struct {
  uint32_t state[8];
  uint64_t bytes;
  uint8_t block[64];
} sha256;

static uint32_t rotate(uint32_t x, int by) { return x >> by | x << (32 - by); }

static inline void round_of(uint32_t a, uint32_t b, uint32_t c, uint32_t *d, uint32_t e, uint32_t f, uint32_t g, uint32_t *h, uint32_t word) {
  uint32_t first = *h + (rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25)) + ((e & f) ^ (~e & g)) + word;
  *d += first;
  *h = first + (rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
}

static void compress(sha256 *hash, const uint8_t *block) {
  static const uint32_t constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be,
    0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa,
    0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85,
    0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3,
    0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f,
    0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};
  uint32_t w[64], s[8];
  int i;
  for (i = 0; i < 16; ++i) {
    w[i] = (uint32_t)block[4 * i] << 24 | (uint32_t)block[4 * i + 1] << 16 | (uint32_t)block[4 * i + 2] << 8 | block[4 * i + 3];
  }
  for (; i < 64; ++i) {
    uint32_t low = rotate(w[i - 15], 7) ^ rotate(w[i - 15], 18) ^ w[i - 15] >> 3;
    uint32_t high = rotate(w[i - 2], 17) ^ rotate(w[i - 2], 19) ^ w[i - 2] >> 10;
    w[i] = w[i - 16] + low + w[i - 7] + high;
  }
  memcpy(s, hash->state, sizeof s);
  for (i = 0; i < 64; i += 8) { /* after 8 rounds each word has its first role again */
    round_of(s[0], s[1], s[2], &s[3], s[4], s[5], s[6], &s[7], constants[i] + w[i]);
    round_of(s[7], s[0], s[1], &s[2], s[3], s[4], s[5], &s[6], constants[i + 1] + w[i + 1]);
    round_of(s[6], s[7], s[0], &s[1], s[2], s[3], s[4], &s[5], constants[i + 2] + w[i + 2]);
    round_of(s[5], s[6], s[7], &s[0], s[1], s[2], s[3], &s[4], constants[i + 3] + w[i + 3]);
    round_of(s[4], s[5], s[6], &s[7], s[0], s[1], s[2], &s[3], constants[i + 4] + w[i + 4]);
    round_of(s[3], s[4], s[5], &s[6], s[7], s[0], s[1], &s[2], constants[i + 5] + w[i + 5]);
    round_of(s[2], s[3], s[4], &s[5], s[6], s[7], s[0], &s[1], constants[i + 6] + w[i + 6]);
    round_of(s[1], s[2], s[3], &s[4], s[5], s[6], s[7], &s[0], constants[i + 7] + w[i + 7]);
  }
  for (i = 0; i < 8; ++i) hash->state[i] += s[i];
}

static void begin(sha256 *hash) {
  static const uint32_t start[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  memcpy(hash->state, start, sizeof start);
  hash->bytes = 0;
}

static void add(sha256 *hash, const void *content, size_t bytes) {
  const uint8_t *from = (const uint8_t *)content;
  size_t filled = hash->bytes % sizeof hash->block;
  if (!bytes) return;
  hash->bytes += bytes;
  if (filled) {
    size_t part = sizeof hash->block - filled < bytes ? sizeof hash->block - filled : bytes;
    memcpy(hash->block + filled, from, part);
    from += part;
    bytes -= part;
    if (filled + part < sizeof hash->block) return;
    compress(hash, hash->block);
  }
  for (; bytes >= sizeof hash->block; from += sizeof hash->block, bytes -= sizeof hash->block) compress(hash, from);
  memcpy(hash->block, from, bytes);
}

static void finish(sha256 *hash, uint8_t digest[DIGEST_BYTES]) {
  static const uint8_t padding[64] = {0x80};
  uint64_t bits = hash->bytes * 8;
  uint8_t length[8];
  int i;
  for (i = 0; i < 8; ++i) length[i] = (uint8_t)(bits >> (56 - 8 * i));
  add(hash, padding, 1 + (119 - hash->bytes % 64) % 64);
  add(hash, length, sizeof length);
  for (i = 0; i < DIGEST_BYTES; ++i) digest[i] = (uint8_t)(hash->state[i / 4] >> (24 - 8 * (i % 4)));
}

static void pad_key(const uint8_t *key, size_t bytes, uint8_t with, uint8_t block[64]) {
  size_t i;
  for (i = 0; i < 64; ++i) block[i] = (uint8_t)((i < bytes ? key[i] : 0) ^ with);
}

static void begin_hmac(sha256 *hash, const uint8_t *key, size_t bytes) {
  uint8_t block[64];
  pad_key(key, bytes, 0x36, block);
  begin(hash);
  add(hash, block, sizeof block);
}

static void finish_hmac(sha256 *hash, const uint8_t *key, size_t bytes, uint8_t digest[DIGEST_BYTES]) {
  uint8_t block[64];
  finish(hash, digest);
  pad_key(key, bytes, 0x5c, block);
  begin(hash);
  add(hash, block, sizeof block);
  add(hash, digest, DIGEST_BYTES);
  finish(hash, digest);
}

void derive_key(uint8_t key[DIGEST_BYTES], const char *token, const char *label, const uint8_t *board, const uint8_t *host) {
  uint8_t secret[DIGEST_BYTES]; /* keys are at most a block long */
  sha256 hash;
  begin(&hash);
  add(&hash, token, strlen(token));
  finish(&hash, secret);
  begin_hmac(&hash, secret, sizeof secret);
  add(&hash, label, strlen(label));
  add(&hash, board, NONCE_BYTES);
  add(&hash, host, NONCE_BYTES);
  finish_hmac(&hash, secret, sizeof secret, key);
}

static void tag_frame(wire *w, int way, const uint8_t header[8], const void *payload, size_t bytes, uint8_t tag[DIGEST_BYTES]) {
  uint8_t count[8];
  sha256 hash;
  write_u64(count, w->counts[way]++);
  begin_hmac(&hash, w->keys[way], DIGEST_BYTES);
  add(&hash, count, sizeof count);
  add(&hash, header, 8);
  add(&hash, payload, bytes);
  finish_hmac(&hash, w->keys[way], DIGEST_BYTES, tag);
}

static int64_t now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int read_exactly(int socket, void *to, size_t bytes, int timeout_ms) {
  int64_t end = now_ms() + timeout_ms;
  char *at = (char *)to;
  while (bytes) {
    struct pollfd waiting = {socket, POLLIN, 0};
    int64_t left = end - now_ms();
    ssize_t count;
    if (left <= 0 || is_ending) return 1;
    if (poll(&waiting, 1, left < LOOK_MS ? (int)left : LOOK_MS) <= 0) continue;
    count = recv(socket, at, bytes, 0);
    if (count <= 0) return 1;
    at += count;
    bytes -= (size_t)count;
  }
  return 0;
}

int write_exactly(int socket, const void *from, size_t bytes) {
  const char *at = (const char *)from;
  while (bytes) {
    ssize_t count = send(socket, at, bytes, MSG_NOSIGNAL);
    if (count <= 0) return 1;
    at += count;
    bytes -= (size_t)count;
  }
  return 0;
}

int receive(wire *w) {
  uint8_t header[8], tag[DIGEST_BYTES], expected[DIGEST_BYTES], differs = 0;
  size_t i;
  if (read_exactly(w->socket, header, sizeof header, w->idle_ms)) return 1;
  w->kind = read_u32(header);
  w->bytes = read_u32(header + 4);
  if (w->bytes > w->limit) return 2;
  if (read_exactly(w->socket, w->payload, w->bytes, w->idle_ms) || read_exactly(w->socket, tag, sizeof tag, w->idle_ms)) return 1;
  w->payload[w->bytes] = 0;
  tag_frame(w, 0, header, w->payload, w->bytes, expected);
  for (i = 0; i < DIGEST_BYTES; ++i) differs |= (uint8_t)(tag[i] ^ expected[i]); /* in the same time for all tags */
  return differs ? 2 : 0;
}

int reply(wire *w, uint32_t kind, const void *payload, size_t bytes) {
  uint8_t header[8], tag[DIGEST_BYTES];
  write_u32(header, kind);
  write_u32(header + 4, (uint32_t)bytes);
  tag_frame(w, 1, header, payload, bytes, tag);
  return write_exactly(w->socket, header, sizeof header) || write_exactly(w->socket, payload, bytes) ||
         write_exactly(w->socket, tag, sizeof tag);
}

int reply_failure(wire *w, uint32_t code, const char *text) {
  uint8_t content[4 + 1024];
  size_t length = strlen(text) < 1024 ? strlen(text) : 1024;
  write_u32(content, code);
  memcpy(content + 4, text, length);
  return reply(w, FAILED, content, 4 + length);
}

uint32_t read_u32(const uint8_t *from) {
  return (uint32_t)from[0] | (uint32_t)from[1] << 8 | (uint32_t)from[2] << 16 | (uint32_t)from[3] << 24;
}

uint64_t read_u64(const uint8_t *from) { return read_u32(from) | (uint64_t)read_u32(from + 4) << 32; }

void write_u32(uint8_t *to, uint32_t value) {
  int i;
  for (i = 0; i < 4; ++i) to[i] = (uint8_t)(value >> 8 * i);
}

void write_u64(uint8_t *to, uint64_t value) {
  write_u32(to, (uint32_t)value);
  write_u32(to + 4, (uint32_t)(value >> 32));
}
