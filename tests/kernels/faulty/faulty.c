// SPDX-License-Identifier: GPL-2.0
/* What a kernel that looks for mistakes has to find, one at a time. */
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/spinlock.h>

static char *mistake = "none";
module_param(mistake, charp, 0444);

static DEFINE_SPINLOCK(first);
static DEFINE_SPINLOCK(second);

static void use_after_free(void)
{
	volatile char *byte = kmalloc(100, GFP_KERNEL);

	kfree((void *)byte);
	byte[5] = 1;
}

static void leak(void)
{
	/* The scanner takes stale words on a stack for pointers: one of many may be overlooked. */
	for (int i = 0; i < 10; i++)
		kmalloc(100, GFP_KERNEL);
}

static void order_of_locks(void)
{
	spin_lock(&first);
	spin_lock(&second);
	spin_unlock(&second);
	spin_unlock(&first);
	spin_lock(&second);
	spin_lock(&first);
	spin_unlock(&first);
	spin_unlock(&second);
}

static int __init faulty_init(void)
{
	if (!strcmp(mistake, "use_after_free"))
		use_after_free();
	if (!strcmp(mistake, "leak"))
		leak();
	if (!strcmp(mistake, "order_of_locks"))
		order_of_locks();
	return 0;
}
module_init(faulty_init);

static void __exit faulty_exit(void)
{
}
module_exit(faulty_exit);

MODULE_DESCRIPTION("Mistakes that have to be found");
MODULE_LICENSE("GPL");
