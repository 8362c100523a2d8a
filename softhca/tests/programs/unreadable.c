/* Two processes: one sends a long message from memory that can't be read. Prints the status of the send. */
#include "end.h"
#include <sys/mman.h>
#include <sys/socket.h>

int main(void)
{
	int s[2];
	char c = 0;
	CHECK(!socketpair(AF_UNIX, SOCK_STREAM, 0, s));
	pid_t child = fork();
	int peer = s[!child];
	close(s[!!child]);
	struct end e = end_open();
	end_connect(&e, end_exchange(&e, peer), 10, 2);
	if (!child) {
		end_recv(&e, 1, END_LEN);
		CHECK(write(peer, &c, 1) == 1);
		/* The device's thread serves us until the sender is done. */
		CHECK(read(peer, &c, 1) == 1);
		return 0;
	}
	CHECK(read(peer, &c, 1) == 1);
	CHECK(!mprotect(e.mem, END_LEN, PROT_NONE));
	end_post(&e, IBV_WR_SEND, 2, END_LEN, (struct where){ 0 });
	printf("%s\n", ibv_wc_status_str(end_wait(&e).status));
	CHECK(write(peer, &c, 1) == 1);
	return 0;
}
