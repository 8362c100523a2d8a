/* Closes all descriptors but its own, as daemons do: between listing the devices and opening one, and with a device
 * open. Then two processes exchange short and long messages, and wait for an event. Or puts another file in the place
 * of those of the device, of a channel that an event is sent to, and of a context. Prints "ok". */
#define _GNU_SOURCE
#include "end.h"
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/wait.h>

static const char *how;

/* All from 3 on, but the n of keep (in rising order). */
static void close_all(const int *keep, int n)
{
	int from = 3;
	for (int i = 0; i <= n; i++) {
		int to = i < n ? keep[i] - 1 : 1023;
		if (!strcmp(how, "close"))
			for (int fd = from; fd <= to; fd++)
				close(fd);
		else if (!strcmp(how, "closefrom") && i == n)
			closefrom(from);
		else if (to >= from)
			CHECK(!close_range(from, i < n ? to : ~0u, 0));
		from = to + 2;
	}
}

static void exchange(int side, int socket)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	CHECK(list && list[0]);
	close_all(&socket, 1);
	struct end e = end_on(ibv_open_device(list[0]));
	int keep[] = { socket, e.ctx->cmd_fd, e.ctx->async_fd, e.channel->fd };
	for (int i = 0; i < 4; i++)
		for (int j = i + 1; j < 4; j++)
			if (keep[j] < keep[i]) {
				int x = keep[i];
				keep[i] = keep[j];
				keep[j] = x;
			}
	close_all(keep, 4);
	end_connect(&e, end_exchange(&e, socket), 14, 7);
	char c = 0;
	for (int i = 0; i < 4; i++) {
		uint32_t len = i % 2 ? END_LEN : 100;
		struct ibv_cq *cq;
		void *context;
		CHECK(!ibv_req_notify_cq(e.cq, 0));
		if (side) {
			end_recv(&e, i, END_LEN);
			CHECK(write(socket, &c, 1) == 1);
		} else {
			CHECK(read(socket, &c, 1) == 1);
			memset(e.mem, 'a' + i, len);
			end_post(&e, IBV_WR_SEND, i, len, (struct where){ 0 });
		}
		CHECK(!ibv_get_cq_event(e.channel, &cq, &context));
		ibv_ack_cq_events(cq, 1);
		struct ibv_wc wc = end_wait(&e);
		CHECK(wc.status == IBV_WC_SUCCESS && wc.wr_id == (uint64_t)i);
		CHECK(e.mem[0] == 'a' + i && e.mem[len - 1] == 'a' + i);
	}
	/* What is closed twice is nobody's. */
	int fd = dup(socket);
	CHECK(fd >= 0 && !close(fd) && close(fd) == -1);
	CHECK(!ibv_destroy_qp(e.qp) && !ibv_destroy_cq(e.cq) && !ibv_destroy_comp_channel(e.channel));
	CHECK(!ibv_dereg_mr(e.mr) && !ibv_dealloc_pd(e.pd) && !ibv_close_device(e.ctx));
}

/* Not the device's own: then it goes on. A channel, and a context, which that closes. */
static void replace(void)
{
	struct end e = end_open();
	int null = open("/dev/null", O_RDONLY), own = 0;
	end_connect(&e, end_where(&e), 14, 7);
	for (int fd = 800; fd < 1000; fd++)
		if (fcntl(fd, F_GETFD) >= 0) {
			CHECK(dup2(null, fd) == -1 && errno == EBUSY);
			CHECK(dup3(null, fd, O_CLOEXEC) == -1 && errno == EBUSY);
			CHECK(dup2(fd, fd) == fd && dup2(-1, fd) == -1 && errno == EBADF);
			own++;
		}
	CHECK(own > 0);
	CHECK(!ibv_req_notify_cq(e.cq, 0));
	CHECK(dup2(null, e.channel->fd) == e.channel->fd);
	end_post(&e, IBV_WR_RDMA_WRITE, 1, 100, end_where(&e));
	CHECK(end_wait(&e).status == IBV_WC_SUCCESS);
	/* What fails closes nothing. */
	CHECK(dup2(-1, e.ctx->cmd_fd) == -1 && dup3(null, e.ctx->cmd_fd, ~0) == -1);
	CHECK(dup2(e.ctx->cmd_fd, e.ctx->cmd_fd) == e.ctx->cmd_fd);
	struct ibv_pd *pd = ibv_alloc_pd(e.ctx);
	CHECK(pd && !ibv_dealloc_pd(pd));
	CHECK(dup3(null, e.ctx->cmd_fd, 0) == e.ctx->cmd_fd);
	CHECK(!ibv_alloc_pd(e.ctx));
}

int main(int argc, char **argv)
{
	int s[2], status = -1;
	CHECK(argc == 2 && !socketpair(AF_UNIX, SOCK_STREAM, 0, s));
	how = argv[1];
	if (!strcmp(how, "dup2")) {
		replace();
		puts("ok");
		return 0;
	}
	pid_t child = fork();
	exchange(!child, s[!child]);
	if (!child)
		return 0;
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	puts("ok");
	return 0;
}
