// Registers memory through libibverbs and says what happened: an independent second opinion for
// the guests, which shares nothing with hugemr.
//
//   mr-probe dev=NAME [total=MIB] [chunk=MIB] [pages=4k|2m|1g] [length=BYTES] [sorted=1]
//            [real=MIB] [stamp=1] [hold=1]
//
// total/chunk   that many MiB in MRs of that size; length: one MR of this length, whatever is mapped
// pages=4k      as root: so placed that no MR of 8 KiB and more can have a larger page size
// sorted        pages mapped in ascending physical order (huge pages, as root)
// real          only that much memory, mapped again and again until total is full (huge pages)
// stamp         each 4 KiB block starts with its own address and the device's mark of a stamp
// hold          keeps the MRs until killed
// Prints "MR index address length" and "registered N MRs ..." or "failed MR N errno E NAME";
// exit status 0, or 1 where a registration failed, 2 where it never came to one.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
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

static const char *argument(int argc, char **argv, const char *key, const char *otherwise)
{
	size_t n = strlen(key);

	for (int i = 1; i < argc; i++)
		if (!strncmp(argv[i], key, n) && argv[i][n] == '=')
			return argv[i] + n + 1;
	return otherwise;
}

static void stop(const char *what)
{
	printf("stopped: %s: errno %d %s\n", what, errno, strerrorname_np(errno));
	exit(2);
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}

struct placed {
	uint64_t frame, offset;
};

static int by_frame(const void *a, const void *b)
{
	uint64_t x = ((const struct placed *)a)->frame, y = ((const struct placed *)b)->frame;

	return (x > y) - (x < y);
}

static uint64_t frame_of(int pagemap, const void *address)
{
	uint64_t entry = 0;

	if (pread(pagemap, &entry, 8, (uintptr_t)address / 4096 * 8) != 8)
		stop("read pagemap");
	return entry & ((UINT64_C(1) << 55) - 1);
}

// An address range that starts at a multiple of 1 GiB, so that nothing but the physical order
// limits the page size.
static char *place(uint64_t total)
{
	char *p = mmap(NULL, total + 1024 * MIB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		stop("reserve addresses");
	return (char *)(((uintptr_t)p + 1024 * MIB - 1) & ~(uintptr_t)(1024 * MIB - 1));
}

static void map_at(char *at, uint64_t length, int fd, uint64_t offset)
{
	if (mmap(at, length, PROT_READ | PROT_WRITE, MAP_FIXED | MAP_SHARED, fd, offset) == MAP_FAILED)
		stop("map memory");
	if (madvise(at, length, MADV_POPULATE_WRITE))
		stop("populate");
}

// The first two pages of each chunk are put where they are not contiguous: the second 4 KiB of an
// MR start a new run, which rules out every page size above.
static void break_up(char *base, uint64_t total, uint64_t chunk, int fd, int pagemap)
{
	for (uint64_t at = 0; at + 8192 <= total; at += chunk)
		if (frame_of(pagemap, base + at) + 1 == frame_of(pagemap, base + at + 4096)) {
			map_at(base + at, 4096, fd, at + 4096);
			map_at(base + at + 4096, 4096, fd, at);
		}
}

static void sort_pages(char *base, uint64_t total, uint64_t page, int fd, int pagemap)
{
	uint64_t n = total / page, run = 1, longest = 1;
	struct placed *pages = calloc(n, sizeof(*pages));

	if (!pages)
		stop("allocate");
	for (uint64_t i = 0; i < n; i++)
		pages[i] = (struct placed){ frame_of(pagemap, base + i * page), i * page };
	qsort(pages, n, sizeof(*pages), by_frame);
	for (uint64_t i = 0; i < n; i++)
		map_at(base + i * page, page, fd, pages[i].offset);
	for (uint64_t i = 1; i < n; i++) {
		run = pages[i].frame == pages[i - 1].frame + page / 4096 ? run + 1 : 1;
		longest = run > longest ? run : longest;
	}
	printf("longest run %" PRIu64 " MiB of %" PRIu64 "\n", longest * page / MIB, total / MIB);
	free(pages);
}

static char *map(uint64_t total, uint64_t chunk, uint64_t real, uint64_t page, int sorted)
{
	unsigned int huge = page == 4096 ? 0 : MFD_HUGETLB | (page == 2 * MIB ? 21u : 30u) << 26;
	char *base = place(total);
	int fd = memfd_create("probe", huge), pagemap = open("/proc/self/pagemap", O_RDONLY);

	if (fd < 0 || ftruncate(fd, real))
		stop("memory file");
	if (pagemap < 0)
		stop("open pagemap");
	for (uint64_t at = 0; at < total; at += real)
		map_at(base + at, total - at < real ? total - at : real, fd, 0);
	if (page == 4096)
		break_up(base, total, chunk, fd, pagemap);
	if (sorted)
		sort_pages(base, total, page, fd, pagemap);
	close(pagemap);
	return base;
}

static struct ibv_pd *open_device(const char *name)
{
	int n = 0;
	struct ibv_device **list = ibv_get_device_list(&n);
	struct ibv_context *context = NULL;

	if (!list)
		stop("list devices");
	for (int i = 0; i < n; i++)
		if (!strcmp(ibv_get_device_name(list[i]), name))
			context = ibv_open_device(list[i]);
	if (!context)
		stop("open the device");
	ibv_free_device_list(list);
	struct ibv_pd *pd = ibv_alloc_pd(context);

	if (!pd)
		stop("allocate a PD");
	return pd;
}

int main(int argc, char **argv)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	const char *device = argument(argc, argv, "dev", NULL);
	const char *pages = argument(argc, argv, "pages", "2m");
	uint64_t total = strtoull(argument(argc, argv, "total", "2"), NULL, 0) * MIB;
	uint64_t chunk = strtoull(argument(argc, argv, "chunk", "0"), NULL, 0) * MIB;
	uint64_t length = strtoull(argument(argc, argv, "length", "0"), NULL, 0);
	uint64_t page = !strcmp(pages, "1g") ? 1024 * MIB : !strcmp(pages, "2m") ? 2 * MIB : 4096;
	uint64_t real = strtoull(argument(argc, argv, "real", "0"), NULL, 0) * MIB;
	int sorted = atoi(argument(argc, argv, "sorted", "0"));
	int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

	chunk = chunk ? chunk : total;
	real = real ? real : total;
	if (!device || !total || total % page || real % page || (sorted && real != total)) {
		fprintf(stderr, "mr-probe: see the head of its source\n");
		return 2;
	}
	struct ibv_pd *pd = open_device(device);
	char *base = map(total, chunk, real, page, sorted);

	if (atoi(argument(argc, argv, "stamp", "0")))
		for (uint64_t at = 0; at < total; at += 4096) {
			*(uint64_t *)(base + at) = (uintptr_t)(base + at);
			memcpy(base + at + 8, "hugemrST", 8);
		}
	chunk = length ? length : chunk;
	uint64_t span = length ? length : total, n = (span + chunk - 1) / chunk, done = 0;
	struct ibv_mr **mr = calloc(n, sizeof(*mr));
	double start = now();

	if (!mr)
		stop("allocate");
	for (; done < n; done++) {
		uint64_t at = done * chunk, len = span - at < chunk ? span - at : chunk;

		errno = 0;
		mr[done] = ibv_reg_mr(pd, base + at, len, access);
		if (!mr[done]) {
			int e = errno;

			printf("failed MR %" PRIu64 " errno %d %s\n", done, e, strerrorname_np(e));
			return 1;
		}
		printf("MR %" PRIu64 " 0x%" PRIxPTR " %" PRIu64 "\n", done, (uintptr_t)(base + at), len);
	}
	printf("registered %" PRIu64 " MRs of %" PRIu64 " MiB in %.3f s\n", done, span / MIB, now() - start);
	if (atoi(argument(argc, argv, "hold", "0")))
		pause();
	while (done--)
		if (ibv_dereg_mr(mr[done]))
			stop("deregister");
	return 0;
}
