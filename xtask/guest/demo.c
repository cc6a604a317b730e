// What one would write by hand after the article: huge pages in a loop, one MR of 64 GiB after the other. It knows nothing
// of the limits of kernels and drivers, so that hugemr can be held beside it in the same guest.
//
//   mr-demo DEVICE MRS CHUNK_MIB REAL_MIB
//
// The guest is small: REAL_MIB of 2 MiB pages stand, mapped again and again, for all of them.
#define _GNU_SOURCE
#include <errno.h>
#include <infiniband/verbs.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define MIB (UINT64_C(1) << 20)
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#define MOST 4096

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}

static void stop(const char *what)
{
	printf("stopped: %s: errno %d %s\n", what, errno, strerrorname_np(errno));
	exit(2);
}

// One buffer of huge pages, all of them there.
static char *buffer(uint64_t length, uint64_t real, int fd)
{
	char *p = mmap(NULL, length + 2 * MIB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		stop("reserve addresses");
	p = (char *)(((uintptr_t)p + 2 * MIB - 1) & ~(uintptr_t)(2 * MIB - 1));
	for (uint64_t at = 0; at < length; at += real) {
		uint64_t n = length - at < real ? length - at : real;

		if (mmap(p + at, n, PROT_READ | PROT_WRITE, MAP_FIXED | MAP_SHARED, fd, 0) == MAP_FAILED)
			stop("map memory");
		if (madvise(p + at, n, MADV_POPULATE_WRITE))
			stop("populate");
	}
	return p;
}

int main(int argc, char **argv)
{
	static struct ibv_mr *mr[MOST];
	static char *memory[MOST];
	int devices = 0, access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

	if (argc < 5 || atoi(argv[2]) < 1 || atoi(argv[2]) > MOST) {
		fprintf(stderr, "mr-demo: see the head of its source\n");
		return 2;
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	int n = atoi(argv[2]), fd = memfd_create("demo", MFD_HUGETLB | 21u << 26);
	uint64_t chunk = strtoull(argv[3], NULL, 0) * MIB, real = strtoull(argv[4], NULL, 0) * MIB;
	struct ibv_device **list = ibv_get_device_list(&devices);
	struct ibv_context *context = NULL;

	if (fd < 0 || ftruncate(fd, (off_t)real))
		stop("memory file");
	for (int i = 0; list && i < devices; i++)
		if (!strcmp(ibv_get_device_name(list[i]), argv[1]))
			context = ibv_open_device(list[i]);
	struct ibv_pd *pd = context ? ibv_alloc_pd(context) : NULL;

	if (!pd)
		stop("open the device");
	double start = now();

	for (int i = 0; i < n; i++)
		memory[i] = buffer(chunk, real, fd);
	double mapped = now();

	for (int i = 0; i < n; i++) {
		mr[i] = ibv_reg_mr(pd, memory[i], chunk, access);
		if (!mr[i]) {
			int e = errno;

			printf("failed MR %d errno %d %s\n", i, e, strerrorname_np(e));
			return 1;
		}
		printf("MR %d 0x%" PRIxPTR " %" PRIu64 "\n", i, (uintptr_t)memory[i], chunk);
	}
	double registered = now();

	for (int i = n; i-- > 0;)
		if (ibv_dereg_mr(mr[i]))
			stop("deregister");
	printf("demo: %d MRs of %" PRIu64 " MiB: populate %.2f s, register %.2f s, release %.2f s\n", n, chunk / MIB,
	       mapped - start, registered - mapped, now() - registered);
	return 0;
}
