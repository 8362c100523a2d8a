/* Two processes. One deregisters the memory of its request while that is under way to the other one, which steps its
 * device itself. Prints the status of a SEND and of a READ. */
#include "end.h"
#include "softhca.h"
#include <sys/socket.h>
#include <sys/wait.h>

#pragma weak softhca_step

int main(void)
{
	int s[2], status = -1;
	char c = 0;
	CHECK(!socketpair(AF_UNIX, SOCK_STREAM, 0, s));
	pid_t child = fork();
	int peer = s[!child];
	if (!child)
		setenv("SOFTHCA_MODE", "manual", 1);
	struct end e = end_open();
	struct where to = end_exchange(&e, peer);
	/* It waits for the answer for ever. */
	end_connect(&e, to, 0, 7);
	if (!child) {
		CHECK(softhca_step);
		end_recv(&e, 1, 64);
		for (int i = 0; i < 2; i++) {
			CHECK(write(peer, &c, 1) == 1 && read(peer, &c, 1) == 1);
			while (recv(peer, &c, 1, MSG_DONTWAIT) < 0)
				softhca_step();
		}
		return 0;
	}
	enum ibv_wr_opcode ops[] = { IBV_WR_SEND, IBV_WR_RDMA_READ };
	for (int i = 0; i < 2; i++) {
		CHECK(read(peer, &c, 1) == 1);
		end_post(&e, ops[i], i, 64, to);
		CHECK(!ibv_dereg_mr(e.mr));
		CHECK(write(peer, &c, 1) == 1);
		printf("%s\n", ibv_wc_status_str(end_wait(&e).status));
		CHECK((e.mr = ibv_reg_mr(e.pd, e.mem, END_LEN, IBV_ACCESS_LOCAL_WRITE)));
		CHECK(write(peer, &c, 1) == 1);
	}
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	return 0;
}
