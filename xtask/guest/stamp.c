// Writes stamps into the memory of another process: the device then looks through the table it was given, and must find
// in each block the block's own address (the stamp check of erdma-emulator).
//
//   mr-stamp PID ADDRESS LENGTH STRIDE [OFFSET]
//
// One stamp every STRIDE bytes: the address, 8 bytes, plus OFFSET (a wrong stamp, to see that the check can fail), then
// the mark "hugemrST".
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	if (argc < 5) {
		fprintf(stderr, "mr-stamp: see the head of its source\n");
		return 2;
	}
	uint64_t at = strtoull(argv[2], NULL, 0), end = at + strtoull(argv[3], NULL, 0);
	uint64_t stride = strtoull(argv[4], NULL, 0);
	uint64_t offset = argc > 5 ? strtoull(argv[5], NULL, 0) : 0;
	char path[64];

	snprintf(path, sizeof(path), "/proc/%s/mem", argv[1]);
	int memory = open(path, O_WRONLY);

	for (; memory >= 0 && stride && at < end; at += stride) {
		struct {
			uint64_t address;
			char mark[8];
		} stamp = { at + offset, "" };

		memcpy(stamp.mark, "hugemrST", 8);
		if (pwrite(memory, &stamp, sizeof(stamp), (off_t)at) != sizeof(stamp))
			break;
	}
	if (memory < 0 || at < end) {
		printf("stopped at 0x%" PRIx64 ": %s\n", at, strerror(errno));
		return 1;
	}
	return 0;
}
