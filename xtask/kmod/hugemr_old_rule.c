// SPDX-License-Identifier: GPL-2.0
/*
 * Puts the page-size rule of kernels before 2025 back, for tests.
 *
 * Kernels chose the page size of a memory region by a rule that looked at each entry of its
 * scatter-gather table alone. Entries end at 4 GiB - 4 KiB at the latest, so that a region over
 * 4 GiB of physically contiguous memory fell to 4 KiB pages. A fix of 2025 looks at contiguous
 * runs instead. With this module a fixed kernel answers by the old rule:
 * a return probe on ib_umem_find_best_pgsz() computes it from the same table and replaces the
 * result. One log line a call, "old rule: iova ... length ... new ... old ...".
 *
 * The old rule: a page size P is allowed where, for every entry, device address and I/O address
 * agree modulo P, and where every entry but the last ends on a multiple of P.
 */
#include <linux/bits.h>
#include <linux/kernel.h>
#include <linux/kprobes.h>
#include <linux/module.h>
#include <linux/ptrace.h>
#include <linux/scatterlist.h>
#include <rdma/ib_umem.h>

static bool override = true;
module_param(override, bool, 0644);
MODULE_PARM_DESC(override, "replace the result (otherwise only log both)");

static unsigned long segment;
module_param(segment, ulong, 0644);
MODULE_PARM_DESC(segment,
		 "treat runs as if entries ended after this many bytes, so that small guests show what 4 GiB runs do (0: as they are)");

struct call {
	struct ib_umem *umem;
	unsigned long sizes;
	u64 iova;
};

static int on_entry(struct kretprobe_instance *instance, struct pt_regs *regs)
{
	struct call *call = (struct call *)instance->data;

	call->umem = (struct ib_umem *)regs_get_kernel_argument(regs, 0);
	call->sizes = regs_get_kernel_argument(regs, 1);
	call->iova = regs_get_kernel_argument(regs, 2);
	return 0;
}
NOKPROBE_SYMBOL(on_entry);

/* Forbids the page sizes that a piece of contiguous memory at @dma, mapped at @iova, rules out. */
static void add_piece(u64 *bits, u64 dma, u64 iova, u64 length, bool last)
{
	while (segment && length > segment) {
		*bits |= (dma ^ iova) | (iova + segment);
		dma += segment;
		iova += segment;
		length -= segment;
	}
	*bits |= dma ^ iova;
	if (!last)
		*bits |= iova + length;
}

static unsigned long old_rule(const struct call *call)
{
	const struct ib_umem *umem = call->umem;
	u64 first = call->iova, end = first + umem->length - 1;
	unsigned int offset = umem->address & ~PAGE_MASK;
	unsigned int count = umem->sgt_append.sgt.nents, i;
	unsigned int block = fls64(first ^ end);
	unsigned long sizes = call->sizes;
	struct scatterlist *sg;
	/* entries begin with the page that the range begins in */
	u64 bits, iova = first - offset;

	/* the first size that holds the whole range in one aligned block is the largest */
	bits = block < 64 ? (u64)sizes >> block << block : 0;
	for_each_sg(umem->sgt_append.sgt.sgl, sg, count, i) {
		u64 length = sg_dma_len(sg);

		add_piece(&bits, sg_dma_address(sg), iova, length, i + 1 == count);
		iova += length;
	}
	if (bits)
		sizes &= GENMASK_ULL(__ffs64(bits), 0);
	return sizes ? BIT(__fls(sizes)) : 0;
}

static int on_return(struct kretprobe_instance *instance, struct pt_regs *regs)
{
	const struct call *call = (const struct call *)instance->data;
	unsigned long new = regs_return_value(regs), old;

	if (!new || !call->umem)
		return 0;
	old = old_rule(call);
	pr_info("old rule: iova 0x%llx length 0x%zx new 0x%lx old 0x%lx\n", call->iova,
		call->umem->length, new, old);
	if (override)
		regs_set_return_value(regs, old);
	return 0;
}
NOKPROBE_SYMBOL(on_return);

static struct kretprobe probe = {
	.kp.symbol_name = "ib_umem_find_best_pgsz",
	.entry_handler = on_entry,
	.handler = on_return,
	.data_size = sizeof(struct call),
	.maxactive = 64,
};

static int __init start(void)
{
	return register_kretprobe(&probe);
}

static void __exit stop(void)
{
	unregister_kretprobe(&probe);
	pr_info("old rule: ended, %d calls missed\n", probe.nmissed);
}

module_init(start);
module_exit(stop);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("The page-size rule of kernels before 2025, for tests of hugemr");
