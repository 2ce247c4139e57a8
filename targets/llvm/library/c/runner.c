/* The runner: waits for hosts that have its token, one at a time, and runs their models. See runner.h. */
#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE
#endif
#include "mirlo.h"
#include "runner.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#if defined(__linux__)
#include <sys/prctl.h>
#endif

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "tensors are sent as this machine has them in memory: the least byte first"
#endif
#if defined(__x86_64__)
#define ARCH "x86_64"
#elif defined(__aarch64__)
#define ARCH "aarch64"
#elif defined(__riscv) && __riscv_xlen == 64
#define ARCH "riscv64"
#else
#define ARCH "unknown"
#endif
#if defined(__linux__)
#define SYSTEM "linux"
#elif defined(__APPLE__)
#define SYSTEM "darwin"
#else
#define SYSTEM "unknown"
#endif

#define HANDSHAKE_MS 5000 /* for a peer of whom nothing is known */
#define REFUSAL_S 1       /* after a wrong token, before anyone is answered again */
#define SEND_S 30         /* a peer that reads nothing for so long is gone */
static const char magic[8] = {'M', 'I', 'R', 'L', 'O', 'R', 'U', 'N'};

typedef struct {
  const char *address, *folder, *token_file;
  int port, seconds, idle_seconds;
  uint64_t limit; /* bytes of what a session has sent, and of the results of a call */
  char token[MAX_TOKEN + 1];
} options;

typedef struct {
  pid_t process; /* 0: there is none */
  int orders, inputs, results;
  uint64_t bytes;
} model;

typedef struct {
  const options *settings;
  wire w;
  char folder[4096];
  model models[MAX_MODELS];
  uint64_t taken; /* bytes of all models and their inputs */
} session;

volatile sig_atomic_t is_ending;

static void end(int number) {
  (void)number;
  is_ending = 1;
}

static int complain(const char *what) {
  fprintf(stderr, "runner: %s\n", what);
  return 1;
}

/* Sessions */

static void close_model(session *s, model *m) {
  int status;
  if (!m->process) return;
  kill(m->process, SIGKILL);
  while (waitpid(m->process, &status, 0) < 0 && errno == EINTR) continue;
  close(m->orders);
  close(m->inputs);
  close(m->results);
  s->taken -= m->bytes;
  memset(m, 0, sizeof *m);
}

static void name_file(const session *s, const char *name, char path[4200]) { snprintf(path, 4200, "%s/%s", s->folder, name); }

/* Open a new file of the folder; one that has no name any more, if only this process and its children are to see it. */
static int open_scratch(const session *s, const char *name, int is_named) {
  char path[4200];
  int file;
  name_file(s, name, path);
  unlink(path);
  file = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0700); /* a library may have to be executable */
  if (file >= 0 && !is_named) unlink(path);
  return file;
}

static int write_file(int file, const uint8_t *from, size_t bytes) {
  while (bytes) {
    ssize_t count = write(file, from, bytes);
    if (count <= 0) return 1;
    from += count;
    bytes -= (size_t)count;
  }
  return 0;
}

/* Write what the next frames hold to a file. 0; 1: the session is over. `failed` says whether the file could not be written. */
static int take_parts(session *s, int file, uint64_t bytes, int *failed) {
  while (bytes) {
    if (receive(&s->w) || s->w.kind != DATA || !s->w.bytes || s->w.bytes > bytes) return 1;
    *failed |= file < 0 || write_file(file, s->w.payload, s->w.bytes);
    bytes -= s->w.bytes;
  }
  return 0;
}

/* Whether there may be so many more bytes: 0; 1: not, which the host was told; -1: the session is over. */
static int exceeds_limit(session *s, uint64_t bytes) {
  char text[200];
  if (bytes <= s->settings->limit - s->taken) return 0;
  snprintf(text, sizeof text, "%llu bytes are more than the %llu of this runner, of which %llu are in use: start it with a larger --memory",
           (unsigned long long)bytes, (unsigned long long)s->settings->limit, (unsigned long long)s->taken);
  return reply_failure(&s->w, LIMIT, text) ? -1 : 1;
}

/* Let the host send so many bytes. 0; 1: they are more than there may be, which it was told; -1: the session is over. */
static int allow(session *s, uint64_t bytes) {
  int outcome = exceeds_limit(s, bytes);
  return outcome ? outcome : -reply(&s->w, OK, "", 0);
}

static void describe_end(int status, char *text, size_t bytes) {
  if (WIFSIGNALED(status)) {
    snprintf(text, bytes, "the process of the model was ended by signal %d, %s", WTERMSIG(status), strsignal(WTERMSIG(status)));
  } else {
    snprintf(text, bytes, "the process of the model ended with code %d", WEXITSTATUS(status));
  }
}

/* Wait for the answer of a model. 0; else the code of a failure that `text` describes; -1: the peer is gone. */
static int await_answer(session *s, model *m, answer *said, char *text, size_t bytes) {
  struct timespec now;
  int64_t end_ms;
  clock_gettime(CLOCK_MONOTONIC, &now);
  end_ms = (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000 + (int64_t)s->settings->seconds * 1000;
  for (;;) {
    struct pollfd waiting[2] = {{m->orders, POLLIN, 0}, {s->w.socket, POLLIN, 0}};
    int64_t left;
    int status;
    clock_gettime(CLOCK_MONOTONIC, &now);
    left = end_ms - ((int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000);
    if (is_ending) return -1;
    if (left <= 0) {
      close_model(s, m);
      snprintf(text, bytes, "the model took longer than the %d seconds of this runner: start it with larger --seconds", s->settings->seconds);
      return TIMEOUT;
    }
    if (poll(waiting, 2, left < LOOK_MS ? (int)left : LOOK_MS) <= 0) continue;
    if (waiting[1].revents) return -1; /* it left, or speaks before its turn */
    if (!waiting[0].revents) continue;
    if (recv(m->orders, said, sizeof *said, MSG_WAITALL) == (ssize_t)sizeof *said) {
      said->message[sizeof said->message - 1] = 0;
      if (!said->failed) return 0;
      snprintf(text, bytes, "%s", said->message);
      return MODEL;
    }
    while (waitpid(m->process, &status, 0) < 0 && errno == EINTR) continue;
    describe_end(status, text, bytes);
    close_model(s, m);
    return CRASH;
  }
}

static void start_process(session *s, model *m, const char *library, const char *weights, int32_t threads) {
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair)) return;
  m->process = fork();
  if (m->process == 0) {
    struct rlimit none = {0, 0};
    int i;
    setrlimit(RLIMIT_CORE, &none);
    signal(SIGTERM, SIG_DFL);
    signal(SIGINT, SIG_DFL);
#if defined(__linux__)
    prctl(PR_SET_PDEATHSIG, SIGKILL);
#endif
    close(s->w.socket);
    close(pair[0]);
    for (i = 0; i < MAX_MODELS; ++i) {
      if (s->models[i].process && &s->models[i] != m) close(s->models[i].orders), close(s->models[i].inputs), close(s->models[i].results);
    }
    memset(s->w.keys, 0, sizeof s->w.keys);
    run_model(pair[1], m->inputs, m->results, library, weights, threads);
  }
  close(pair[1]);
  m->orders = pair[0];
  if (m->process < 0) {
    m->process = 0;
    close(pair[0]);
  }
}

static model *free_place(session *s) {
  int i;
  for (i = 0; i < MAX_MODELS; ++i) {
    if (!s->models[i].process) return &s->models[i];
  }
  return NULL;
}

/* Take a library and its weights, and open the model in a process of its own. */
static int load(session *s) {
  uint64_t library_bytes, weights_bytes;
  char library[4200], weights[4200], text[600] = "";
  model *m = free_place(s);
  answer said;
  int32_t threads;
  int file, failed = 0, code, outcome;
  if (s->w.bytes != 20) return 1;
  library_bytes = read_u64(s->w.payload);
  weights_bytes = read_u64(s->w.payload + 8);
  threads = (int32_t)read_u32(s->w.payload + 16);
  if (!m) return reply_failure(&s->w, LIMIT, "there are too many models on this runner: free some");
  if (library_bytes > UINT64_MAX - weights_bytes) return 1;
  outcome = allow(s, library_bytes + weights_bytes);
  if (outcome) return outcome < 0;
  m->bytes = library_bytes + weights_bytes;
  name_file(s, "model.so", library);
  name_file(s, "model.weights", weights);
  file = open_scratch(s, "model.so", 1);
  if (take_parts(s, file, library_bytes, &failed)) return 1;
  close(file);
  file = open_scratch(s, "model.weights", 1);
  if (take_parts(s, file, weights_bytes, &failed)) return 1;
  close(file);
  m->inputs = open_scratch(s, "inputs", 0);
  m->results = open_scratch(s, "results", 0);
  if (!failed && m->inputs >= 0 && m->results >= 0) start_process(s, m, library, weights, threads);
  if (!m->process) {
    unlink(library), unlink(weights), close(m->inputs), close(m->results);
    memset(m, 0, sizeof *m);
    return reply_failure(&s->w, LIMIT, "the model cannot be kept or started: is the folder of the runner full, or its number of processes limited?");
  }
  s->taken += m->bytes;
  code = await_answer(s, m, &said, text, sizeof text);
  unlink(library), unlink(weights); /* the process has them */
  if (code < 0) return 1;
  if (code) {
    close_model(s, m);
    return reply_failure(&s->w, (uint32_t)code, text);
  }
  write_u32((uint8_t *)text, (uint32_t)(m - s->models));
  return reply(&s->w, OK, text, 4);
}

static model *named_model(session *s) {
  uint32_t number = s->w.bytes >= 4 ? read_u32(s->w.payload) : MAX_MODELS;
  return number < MAX_MODELS && s->models[number].process ? &s->models[number] : NULL;
}

static int unknown_model(session *s) { return reply_failure(&s->w, CRASH, "this model is not on the runner any more"); }

/* Give an order to a model and wait; 0 with the answer, or 1 where the session goes on without one, or -1 where it is over. */
static int obey(session *s, model *m, const order *wanted, answer *said) {
  char text[600] = "";
  int code;
  if (send(m->orders, wanted, sizeof *wanted, 0) != (ssize_t)sizeof *wanted) {
    close_model(s, m);
    return unknown_model(s) ? -1 : 1;
  }
  code = await_answer(s, m, said, text, sizeof text);
  if (code < 0) return -1;
  if (!code) return 0;
  return reply_failure(&s->w, (uint32_t)code, text) ? -1 : 1;
}

static int take_inputs(session *s) {
  model *m = named_model(s);
  uint64_t bytes;
  order wanted;
  answer said;
  int failed = 0, outcome;
  if (s->w.bytes != 12) return 1;
  if (!m) return unknown_model(s);
  bytes = read_u64(s->w.payload + 4);
  outcome = allow(s, bytes);
  if (outcome) return outcome < 0;
  if (ftruncate(m->inputs, 0) || lseek(m->inputs, 0, SEEK_SET)) failed = 1;
  if (take_parts(s, m->inputs, bytes, &failed)) return 1;
  if (failed) return reply_failure(&s->w, LIMIT, "the inputs cannot be kept: is the folder of the runner full?");
  memset(&wanted, 0, sizeof wanted);
  wanted.kind = INPUTS;
  wanted.bytes = bytes;
  outcome = obey(s, m, &wanted, &said);
  if (m->process && ftruncate(m->inputs, 0)) return 1;
  return outcome ? outcome < 0 : reply(&s->w, OK, "", 0);
}

static int send_results(session *s, model *m, uint64_t bytes) {
  static uint8_t part[MAX_PAYLOAD];
  uint8_t length[8];
  uint64_t at = 0;
  write_u64(length, bytes);
  if (reply(&s->w, OK, length, sizeof length)) return 1;
  while (at < bytes) {
    size_t wanted = bytes - at < MAX_PAYLOAD ? (size_t)(bytes - at) : MAX_PAYLOAD;
    ssize_t count = pread(m->results, part, wanted, (off_t)at);
    if (count <= 0 || reply(&s->w, PART, part, (size_t)count)) return 1;
    at += (uint64_t)count;
  }
  return ftruncate(m->results, 0) != 0;
}

static int run(session *s) {
  model *m = named_model(s);
  order wanted;
  answer said;
  int outcome;
  if (s->w.bytes != 28) return 1;
  if (!m) return unknown_model(s);
  memset(&wanted, 0, sizeof wanted);
  wanted.kind = RUN;
  wanted.calls = read_u32(s->w.payload + 4);
  wanted.warm = read_u32(s->w.payload + 8);
  wanted.stamps = read_u32(s->w.payload + 12);
  wanted.flags = read_u32(s->w.payload + 16);
  wanted.pause_ns = read_u64(s->w.payload + 20);
  if (wanted.calls > MAX_CALLS || wanted.warm > MAX_CALLS || wanted.stamps > MAX_STAMPS ||
      (uint64_t)wanted.calls * (wanted.stamps + 2) > s->settings->limit / 8) {
    return reply_failure(&s->w, LIMIT, "so many calls at a time are more than this runner takes");
  }
  outcome = obey(s, m, &wanted, &said);
  return outcome ? outcome < 0 : send_results(s, m, said.bytes);
}

static int free_model(session *s) {
  model *m = named_model(s);
  if (s->w.bytes != 4) return 1;
  if (m) close_model(s, m);
  return reply(&s->w, OK, "", 0);
}

static int tell_facts(session *s) {
  char text[512];
  int length = snprintf(text, sizeof text, "arch %s\nsystem %s\nabi %d\ncores %ld\nlimit %llu\nseconds %d\n", ARCH, SYSTEM, MIRLO_ABI,
                        sysconf(_SC_NPROCESSORS_ONLN), (unsigned long long)s->settings->limit, s->settings->seconds);
  return reply(&s->w, OK, text, (size_t)length);
}

/* Reply those of some features that the processor has. */
static int tell_features(session *s) {
  static char known[MAX_PAYLOAD + 1];
  char *name, *rest = NULL;
  size_t length = 0;
  for (name = strtok_r((char *)s->w.payload, " ", &rest); name; name = strtok_r(NULL, " ", &rest)) {
    if (!mirlo_has_feature(name)) continue;
    length += (size_t)snprintf(known + length, sizeof known - length, "%s%s", length ? " " : "", name);
  }
  return reply(&s->w, OK, known, length);
}

static int serve_one(session *s) {
  switch (s->w.kind) {
    case FEATURES: return tell_features(s);
    case LOAD: return load(s);
    case INPUTS: return take_inputs(s);
    case RUN: return run(s);
    case FREE: return free_model(s);
    default: return reply_failure(&s->w, BAD_FRAME, "the runner does not know this request"), 1;
  }
}

static int draw_nonce(uint8_t nonce[NONCE_BYTES]) {
  int file = open("/dev/urandom", O_RDONLY | O_CLOEXEC);
  ssize_t count = file >= 0 ? read(file, nonce, NONCE_BYTES) : -1;
  if (file >= 0) close(file);
  return count != NONCE_BYTES;
}

static int greet(int socket, uint32_t state, const uint8_t nonce[NONCE_BYTES]) {
  uint8_t greeting[GREETING_BYTES];
  memcpy(greeting, magic, sizeof magic);
  write_u32(greeting + 8, VERSION);
  write_u32(greeting + 12, state);
  memcpy(greeting + 16, nonce, NONCE_BYTES);
  return write_exactly(socket, greeting, sizeof greeting);
}

/* Require a peer that has the token: 0 if it does. */
static int shake_hands(session *s) {
  uint8_t nonce[NONCE_BYTES], greeting[GREETING_BYTES], refusal[8 + DIGEST_BYTES] = {0};
  s->w.idle_ms = HANDSHAKE_MS;
  if (draw_nonce(nonce) || greet(s->w.socket, READY, nonce)) return 1;
  if (read_exactly(s->w.socket, greeting, sizeof greeting, HANDSHAKE_MS)) return 1;
  if (memcmp(greeting, magic, sizeof magic) || read_u32(greeting + 8) != VERSION) return 1;
  derive_key(s->w.keys[0], s->settings->token, "host", nonce, greeting + 16);
  derive_key(s->w.keys[1], s->settings->token, "board", nonce, greeting + 16);
  switch (receive(&s->w)) {
    case 0: break;
    case 1: return 1;
    default:
      sleep(REFUSAL_S);
      write_u32(refusal, REFUSED);
      write_exactly(s->w.socket, refusal, sizeof refusal);
      return complain("a host with another token was refused");
  }
  if (s->w.kind != START) return 1;
  s->w.idle_ms = s->settings->idle_seconds * 1000;
  s->w.limit = MAX_PAYLOAD;
  return tell_facts(s);
}

static void end_session(session *s) {
  char path[4200];
  int i;
  for (i = 0; i < MAX_MODELS; ++i) close_model(s, &s->models[i]);
  name_file(s, "model.so", path), unlink(path);
  name_file(s, "model.weights", path), unlink(path);
  if (s->folder[0]) rmdir(s->folder);
}

static _Noreturn void run_session(int socket, const options *settings) {
  static session s; /* more than some stacks have */
  struct timeval longest = {SEND_S, 0};
  int one = 1;
  s.settings = settings;
  s.w.socket = socket;
  s.w.limit = 0; /* bytes of a frame, until the peer has shown that it has the token */
  setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &longest, sizeof longest);
  setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  if (!shake_hands(&s)) {
    if (snprintf(s.folder, sizeof s.folder, "%s/mirlo-runner-XXXXXX", settings->folder) >= (int)sizeof s.folder || !mkdtemp(s.folder)) {
      s.folder[0] = 0;
      complain("cannot make a folder for models: name one with --folder");
    } else {
      while (!is_ending && !receive(&s.w) && !serve_one(&s)) continue;
    }
  }
  end_session(&s);
  _exit(0);
}

/* The listener */

static int read_number(const char *text, long least, long most, long *number) {
  char *after;
  errno = 0;
  *number = text ? strtol(text, &after, 10) : 0;
  return !text || !*text || *after || errno || *number < least || *number > most;
}

static int read_token(options *settings) {
  const char *from = getenv("MIRLO_REMOTE_TOKEN");
  size_t length = 0;
  if (settings->token_file) {
    FILE *file = fopen(settings->token_file, "rb");
    if (!file) return complain("the file of the token cannot be read");
    length = fread(settings->token, 1, MAX_TOKEN + 1, file);
    fclose(file);
  } else if (from) {
    length = strlen(from);
    if (length <= MAX_TOKEN) memcpy(settings->token, from, length);
    unsetenv("MIRLO_REMOTE_TOKEN");
  }
  while (length && length <= MAX_TOKEN && strchr("\r\n", settings->token[length - 1])) --length;
  if (length < MIN_TOKEN || length > MAX_TOKEN || memchr(settings->token, 0, length)) {
    return complain("expected a token of 16 to 256 characters, in the file that --token-file names or in MIRLO_REMOTE_TOKEN");
  }
  settings->token[length] = 0;
  return 0;
}

static int read_options(int count, char **arguments, options *settings) {
  int i;
  settings->address = "127.0.0.1";
  settings->folder = getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp";
  settings->seconds = 300;
  settings->idle_seconds = 600;
  settings->limit = (uint64_t)2 << 30;
  for (i = 1; i < count; i += 2) {
    const char *flag = arguments[i], *value = i + 1 < count ? arguments[i + 1] : NULL;
    long number = 0;
    int is_wrong = 0;
    if (!strcmp(flag, "--port")) {
      is_wrong = read_number(value, 0, 65535, &number);
      settings->port = (int)number;
    } else if (!strcmp(flag, "--memory")) {
      is_wrong = read_number(value, 1, 1 << 20, &number);
      settings->limit = (uint64_t)number << 20;
    } else if (!strcmp(flag, "--seconds")) {
      is_wrong = read_number(value, 1, 86400, &number);
      settings->seconds = (int)number;
    } else if (!strcmp(flag, "--idle")) {
      is_wrong = read_number(value, 1, 86400, &number);
      settings->idle_seconds = (int)number;
    } else if (!strcmp(flag, "--listen")) {
      settings->address = value;
    } else if (!strcmp(flag, "--folder")) {
      settings->folder = value;
    } else if (!strcmp(flag, "--token-file")) {
      settings->token_file = value;
    } else {
      is_wrong = 1;
    }
    if (is_wrong || !value) {
      fprintf(stderr,
              "runner: '%s %s' is no option\nrunner [--port N] [--listen ADDRESS] [--token-file FILE] [--folder DIR] [--memory MIB] "
              "[--seconds S] [--idle S]\n",
              flag, value ? value : "");
      return 1;
    }
  }
  return read_token(settings);
}

/* The address that --listen names, IPv4 or IPv6; NULL: it is none. */
static struct addrinfo *own_address(const options *settings) {
  struct addrinfo wanted, *own = NULL;
  char port[8];
  memset(&wanted, 0, sizeof wanted);
  wanted.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE;
  wanted.ai_family = AF_UNSPEC;
  wanted.ai_socktype = SOCK_STREAM;
  snprintf(port, sizeof port, "%d", settings->port);
  return getaddrinfo(settings->address, port, &wanted, &own) ? NULL : own;
}

static int bound_listener(const struct addrinfo *own) {
  int listener = socket(own->ai_family, SOCK_STREAM, 0), one = 1;
  if (listener < 0) return -1;
  fcntl(listener, F_SETFD, FD_CLOEXEC);
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  if (!bind(listener, own->ai_addr, own->ai_addrlen) && !listen(listener, 4)) return listener;
  close(listener);
  return -1;
}

static int open_listener(const options *settings) {
  struct addrinfo *own = own_address(settings);
  struct sockaddr_storage bound;
  socklen_t length = sizeof bound;
  char host[NI_MAXHOST], port[NI_MAXSERV];
  int listener, is_ipv6;
  if (!own) return complain("--listen takes an address such as 127.0.0.1 or ::1"), -1;
  listener = bound_listener(own);
  freeaddrinfo(own);
  if (listener < 0 || getsockname(listener, (struct sockaddr *)&bound, &length) ||
      getnameinfo((struct sockaddr *)&bound, length, host, sizeof host, port, sizeof port, NI_NUMERICHOST | NI_NUMERICSERV)) {
    fprintf(stderr, "runner: cannot listen on %s, port %d: %s\n", settings->address, settings->port, strerror(errno));
    return -1;
  }
  is_ipv6 = bound.ss_family == AF_INET6;
  printf("listening on %s%s%s:%s\n", is_ipv6 ? "[" : "", host, is_ipv6 ? "]" : "", port);
  fflush(stdout);
  return listener;
}

static void set_signals(void) {
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_handler = end; /* calls that wait are interrupted */
  sigaction(SIGTERM, &action, NULL);
  sigaction(SIGINT, &action, NULL);
  signal(SIGPIPE, SIG_IGN);
}

static pid_t start_session(int socket, int listener, const options *settings) {
  pid_t process = fork();
  if (process == 0) {
    close(listener);
#if defined(__linux__)
    prctl(PR_SET_PDEATHSIG, SIGTERM);
#endif
    run_session(socket, settings);
  }
  return process;
}

int main(int count, char **arguments) {
  static options settings;
  static const uint8_t nothing[NONCE_BYTES];
  pid_t process = 0; /* of the session */
  int listener;
  if (read_options(count, arguments, &settings)) return 2;
  set_signals();
  listener = open_listener(&settings);
  if (listener < 0) return 1;
  while (!is_ending) {
    struct pollfd waiting = {listener, POLLIN, 0};
    int socket;
    if (poll(&waiting, 1, LOOK_MS) <= 0) continue;
    socket = accept(listener, NULL, NULL);
    if (socket < 0) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      break;
    }
    fcntl(socket, F_SETFD, FD_CLOEXEC);
    if (process > 0 && waitpid(process, NULL, WNOHANG) == 0) {
      greet(socket, BUSY, nothing);
    } else {
      process = start_session(socket, listener, &settings);
    }
    close(socket);
  }
  if (process > 0) {
    kill(process, SIGTERM);
    waitpid(process, NULL, 0);
  }
  return 0;
}
