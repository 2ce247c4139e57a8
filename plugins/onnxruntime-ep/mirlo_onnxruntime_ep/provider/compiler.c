/* The compiler: a process of Python that reads requests from a socket and answers in lines, the last of which is "end". */
#define _POSIX_C_SOURCE 200809L
#include "provider.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef MSG_NOSIGNAL
#define MSG_NOSIGNAL 0
#endif

extern char **environ;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* one request at a time */
static pid_t process;
static int socket_of_process = -1;
static FILE *answers;

static OrtStatus *start(const char *python) {
  char *arguments[] = {(char *)python, "-m", "mirlo_onnxruntime_ep.compiler", NULL};
  posix_spawn_file_actions_t actions;
  int ends[2], error;
  if (answers) return NULL;
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends)) return failed("no socket for the compiler: %s", strerror(errno));
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], 0);
  posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
  posix_spawn_file_actions_addclose(&actions, ends[0]);
  if (ends[1] > 1) posix_spawn_file_actions_addclose(&actions, ends[1]);
  error = posix_spawnp(&process, python, &actions, NULL, arguments, environ);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  if (error) {
    close(ends[0]);
    return failed("the compiler does not start: '%s': %s; set the option 'python' to a Python that has the package mirlo-onnxruntime-ep", python, strerror(error));
  }
  socket_of_process = ends[0];
  answers = fdopen(ends[0], "r");
  return NULL;
}

static OrtStatus *stop(const char *why) {
  int result = 0;
  fclose(answers);
  answers = NULL;
  if (waitpid(process, &result, WNOHANG) == 0) {
    kill(process, SIGKILL);
    waitpid(process, &result, 0);
  }
  return failed("the compiler %s (%s %d)", why, WIFSIGNALED(result) ? "signal" : "exit status",
                WIFSIGNALED(result) ? WTERMSIG(result) : WEXITSTATUS(result));
}

OrtStatus *ask_compiler(const char *python, const char *request, OrtStatus *(*handle)(void *, const char *), void *user) {
  char line[8192];
  size_t sent = 0, size = strlen(request);
  OrtStatus *status, *found = NULL;
  pthread_mutex_lock(&lock);
  TRY(start(python));
  while (sent < size) {
    ssize_t count = send(socket_of_process, request + sent, size - sent, MSG_NOSIGNAL);
    if (count <= 0) {
      status = stop("ended before it took a model");
      goto end;
    }
    sent += (size_t)count;
  }
  for (;;) {
    if (!fgets(line, sizeof line, answers)) {
      status = stop("ended while it compiled");
      break;
    }
    line[strcspn(line, "\n")] = 0;
    if (!strcmp(line, "end")) break;
    if (found) continue;
    if (!strncmp(line, "error ", 6)) found = failed("%s", line + 6);
    else found = handle(user, line);
  }
end:
  pthread_mutex_unlock(&lock);
  if (status && found) ORT(ReleaseStatus)(found);
  return status ? status : found;
}
