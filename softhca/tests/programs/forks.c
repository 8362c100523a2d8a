/* Forks in every way. Prints "ok". */
#include "end.h"
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/time.h>
#include <sys/wait.h>

static volatile sig_atomic_t forks;

static void fork_here(int signal)
{
	(void)signal;
	int e = errno, status = -1;
	pid_t pid = fork();
	if (!pid)
		_exit(0);
	if (pid > 0 && waitpid(pid, &status, 0) == pid && status == 0)
		forks++;
	errno = e;
}

/* From the handler of a signal that comes while the device works in our calls. */
static void in_handler(void)
{
	struct end e = end_open();
	end_connect(&e, end_where(&e), 14, 7);
	signal(SIGALRM, fork_here);
	struct itimerval often = { { 0, 2000 }, { 0, 2000 } }, never = { { 0, 0 }, { 0, 0 } };
	setitimer(ITIMER_REAL, &often, NULL);
	for (uint64_t i = 0; forks < 300; i++) {
		end_post(&e, IBV_WR_RDMA_WRITE, i, 4096, end_where(&e));
		struct ibv_wc wc = end_wait(&e);
		CHECK(wc.status == IBV_WC_SUCCESS && wc.wr_id == i);
	}
	setitimer(ITIMER_REAL, &never, NULL);
}

/* Descriptors whose file is part of the device. */
static int own_files(void)
{
	int n = 0;
	DIR *d = opendir("/proc/self/fd");
	for (struct dirent *f; (f = readdir(d));) {
		char path[300], to[300];
		snprintf(path, sizeof path, "/proc/self/fd/%s", f->d_name);
		ssize_t len = readlink(path, to, sizeof to - 1);
		to[len > 0 ? len : 0] = 0;
		n += strstr(to, "/dev/shm/softhca") != NULL;
	}
	closedir(d);
	return n;
}

/* Started by exec from a process with a device: has its own. */
static int look(const char *parents_lid)
{
	struct end e = end_open();
	return e.lid == atoi(parents_lid);
}

/* A child that closes everything and becomes another program, while it borrows our memory. */
static void become_another(struct end *e)
{
	char lid[20];
	int status = -1;
	snprintf(lid, sizeof lid, "%d", e->lid);
	char *args[] = { "/proc/self/exe", "look", lid, NULL };
	pid_t child = vfork();
	if (!child) {
		for (int fd = 3; fd < 1024; fd++)
			close(fd);
		execv(args[0], args);
		_exit(99);
	}
	CHECK(waitpid(child, &status, 0) == child && status == 0);
}

/* More children at a time than a fabric has places; none has one before it looks for a device. */
static void many(void)
{
	enum { N = 100 };
	struct end e = end_open();
	int go[2], ready[2];
	CHECK(own_files() == 1 && !pipe(go) && !pipe(ready));
	for (int i = 0; i < N; i++)
		if (!fork()) {
			char c = own_files();
			CHECK(write(ready[1], &c, 1) == 1);
			close(go[1]);
			_exit(read(go[0], &c, 1) != 0);
		}
	for (int i = 0; i < N; i++) {
		char c = 1;
		CHECK(read(ready[0], &c, 1) == 1 && c == 0);
	}
	become_another(&e);
	/* One that wants a device gets its own, and reaches its parent's. */
	int tell[2];
	CHECK(!pipe(tell));
	struct where parent = end_where(&e);
	pid_t child = fork();
	if (!child) {
		close(go[1]);
		struct end c = end_open();
		struct where w = end_where(&c);
		CHECK(c.lid != parent.lid && write(tell[1], &w, sizeof w) == sizeof w);
		end_connect(&c, parent, 14, 7);
		CHECK(read(go[0], &w, 1) == 0);
		strcpy(c.mem, "from the child");
		end_post(&c, IBV_WR_RDMA_WRITE, 1, 100, parent);
		CHECK(end_wait(&c).status == IBV_WC_SUCCESS);
		_exit(0);
	}
	struct where w;
	CHECK(read(tell[0], &w, sizeof w) == sizeof w);
	end_connect(&e, w, 14, 7);
	close(go[1]);
	for (int status = -1, i = 0; i < N + 1; i++)
		CHECK(wait(&status) > 0 && status == 0);
	CHECK(!strcmp(e.mem, "from the child"));
}

static volatile int works;

static void *work(void *stop)
{
	struct end e = end_open();
	end_connect(&e, end_where(&e), 14, 7);
	for (uint64_t i = 0; !*(volatile int *)stop; i++) {
		end_post(&e, IBV_WR_RDMA_WRITE, i, 4096, end_where(&e));
		CHECK(end_wait(&e).status == IBV_WC_SUCCESS);
		works = 1;
	}
	return NULL;
}

/* While another thread makes the device work: each child has a device that works. */
static void beside_a_thread(void)
{
	pthread_t thread;
	int stop = 0, status = -1;
	CHECK(!pthread_create(&thread, NULL, work, &stop));
	/* Not before: libibverbs locks its list of devices while it opens one, and a child would find that locked. */
	while (!works)
		usleep(1000);
	for (int i = 0; i < 50; i++) {
		pid_t child = fork();
		if (!child) {
			struct end e = end_open();
			end_connect(&e, end_where(&e), 14, 7);
			end_post(&e, IBV_WR_RDMA_WRITE, 1, 4096, end_where(&e));
			_exit(end_wait(&e).status != IBV_WC_SUCCESS);
		}
		CHECK(waitpid(child, &status, 0) == child && status == 0);
	}
	stop = 1;
	CHECK(!pthread_join(thread, NULL));
}

int main(int argc, char **argv)
{
	CHECK(argc >= 2);
	if (!strcmp(argv[1], "look"))
		return look(argv[2]);
	if (!strcmp(argv[1], "handler"))
		in_handler();
	else if (!strcmp(argv[1], "threads"))
		beside_a_thread();
	else
		many();
	puts("ok");
	return 0;
}
