/* Asks for the files of the device by each function that knows them, without and with 64-bit names of the functions.
 * Prints "ok". */
#define _GNU_SOURCE
#include "end.h"
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#define ROOT "/sys/class/infiniband"

static void is_missing(int rc)
{
	CHECK(rc == -1 && errno == ENOENT);
}

static void is_like(const struct stat *st, mode_t kind, int minor)
{
	CHECK((st->st_mode & S_IFMT) == kind);
	CHECK(kind != S_IFCHR || (major(st->st_rdev) == 231 && (int)minor(st->st_rdev) == minor));
}

static void look(int dir, const char *path, mode_t kind, int minor)
{
	struct stat st;
	struct statx x;
	if (dir == AT_FDCWD) {
		CHECK(!stat(path, &st));
		is_like(&st, kind, minor);
		CHECK(!lstat(path, &st));
		is_like(&st, kind, minor);
		CHECK(!access(path, R_OK) && !eaccess(path, F_OK) && !euidaccess(path, F_OK));
	}
	CHECK(!fstatat(dir, path, &st, AT_SYMLINK_NOFOLLOW));
	is_like(&st, kind, minor);
	CHECK(!statx(dir, path, 0, STATX_BASIC_STATS, &x));
	CHECK((x.stx_mode & S_IFMT) == kind);
	CHECK(kind != S_IFCHR || (x.stx_rdev_major == 231 && (int)x.stx_rdev_minor == minor));
	CHECK(!faccessat(dir, path, R_OK, 0) && !faccessat(dir, path, R_OK, AT_EACCESS));
}

static void look_away(const char *path)
{
	struct stat st;
	struct statx x;
	is_missing(stat(path, &st));
	is_missing(lstat(path, &st));
	is_missing(fstatat(AT_FDCWD, path, &st, 0));
	is_missing(statx(AT_FDCWD, path, 0, STATX_BASIC_STATS, &x));
	is_missing(access(path, F_OK));
	is_missing(faccessat(AT_FDCWD, path, F_OK, 0));
	is_missing(open(path, O_RDONLY));
}

/* The descriptor itself. */
static void look_at(int fd, mode_t kind, int minor)
{
	struct stat st;
	struct statx x;
	CHECK(!fstat(fd, &st));
	is_like(&st, kind, minor);
	CHECK(!fstatat(fd, "", &st, AT_EMPTY_PATH));
	is_like(&st, kind, minor);
	CHECK(!statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &x));
	CHECK((x.stx_mode & S_IFMT) == kind);
}

int main(void)
{
	char text[8];
	look(AT_FDCWD, ROOT "/mlx5_0", S_IFDIR, 0);
	look(AT_FDCWD, ROOT "/mlx5_0/node_type", S_IFREG, 0);
	look(AT_FDCWD, "/dev/infiniband/uverbs0", S_IFCHR, 192);
	look_away(ROOT "/mlx5_7");
	look_away("/dev/infiniband/uverbs7");
	int dir = open(ROOT "/mlx5_0", O_RDONLY | O_DIRECTORY);
	CHECK(dir >= 0);
	look(dir, "ports", S_IFDIR, 0);
	look(dir, "node_type", S_IFREG, 0);
	look(dir, "/dev/infiniband/uverbs0", S_IFCHR, 192);
	is_missing(faccessat(dir, "nothing", F_OK, 0));
	is_missing(openat(dir, "nothing", O_RDONLY));
	int file = openat(dir, "node_type", O_RDONLY);
	CHECK(file >= 0 && read(file, text, 5) == 5 && !memcmp(text, "1: CA", 5));
	look_at(dir, S_IFDIR, 0);
	look_at(file, S_IFREG, 0);
	look_at(end_open().ctx->cmd_fd, S_IFCHR, 192);
	/* Those of the host are as they are. */
	look(AT_FDCWD, "/proc/self/status", S_IFREG, 0);
	look(AT_FDCWD, "/", S_IFDIR, 0);
	look_away("/nothing");
	puts("ok");
	return 0;
}
