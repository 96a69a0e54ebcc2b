/* SPDX-License-Identifier: MIT OR GPL-2.0-only
 *
 * What the processes of runs do: programs that they execute, addresses that they connect to, files that they open.
 *
 * Which processes these are is kept here: the daemon puts the process of `agentvfs run` into `procs` as a root, forks
 * add to it and ends take away. A child of a root is told of from the first program that it executes on, so building a
 * sandbox is not told of. Processes of registered control groups (version 2) are looked up by their groups.
 *
 * Tracepoints alone: there are kernels that have no kprobes and let nobody attach to functions. Files are told of by
 * what the kernel has opened, never by the name that the program gave.
 *
 * Compiled by build.sh; runs.bpf.o is in the repository, and a test compares the two. Nothing here is of a kernel's
 * headers: structures have the members that are read alone, and the loader finds out where the running kernel has them
 * (CO-RE). Numbers of helpers, maps and flags are the kernel's interface (linux/bpf.h).
 */

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#define SEC(name) __attribute__((section(name), used))
#define INLINE static inline __attribute__((always_inline))
/* A function that the kernel verifies by itself and not at each call; it takes and gives numbers. */
#define APART __attribute__((noinline))
#define RELOCATED __attribute__((preserve_access_index))

/* bpf(2): types of maps. */
#define MAP_HASH 1
#define MAP_ARRAY 2
#define MAP_PERCPU_ARRAY 6
#define MAP_RINGBUF 27

/* Members of a map's description, as the loader reads them from the types. */
#define UINT(name, value) int (*name)[value]
#define TYPE(name, value) typeof(value) *name

/* bpf-helpers(7). */
static void *(*const map_lookup)(void *map, const void *key) = (void *)1;
static long (*const map_update)(void *map, const void *key, const void *value, u64 flags) = (void *)2;
static long (*const map_delete)(void *map, const void *key) = (void *)3;
static u64 (*const current_uid_gid)(void) = (void *)15;
static long (*const current_comm)(void *to, u32 size) = (void *)16;
static u64 (*const current_task)(void) = (void *)35;
static long (*const read_user)(void *to, u32 size, const void *from) = (void *)112;
static long (*const read_kernel)(void *to, u32 size, const void *from) = (void *)113;
static long (*const read_user_str)(void *to, u32 size, const void *from) = (void *)114;
static long (*const read_kernel_str)(void *to, u32 size, const void *from) = (void *)115;
static u64 (*const current_ancestor_cgroup)(int level) = (void *)123;
static long (*const ring_output)(void *ring, void *data, u64 size, u64 flags) = (void *)130;

/* Parts of the kernel's structures. */
struct ns_common {
	u32 inum;
} RELOCATED;

struct pid_namespace {
	struct ns_common ns;
} RELOCATED;

struct upid {
	int nr;
	struct pid_namespace *ns;
} RELOCATED;

struct pid {
	u32 level;
	struct upid numbers[1];
} RELOCATED;

typedef struct {
	int counter;
} atomic_t;

struct signal_struct {
	atomic_t live;
	struct pid *pids[4];
} RELOCATED;

struct mm_struct {
	unsigned long arg_start;
} RELOCATED;

struct vfsmount {
	struct dentry *mnt_root;
} RELOCATED;

struct qstr {
	const u8 *name;
} RELOCATED;

struct dentry {
	struct dentry *d_parent;
	struct qstr d_name;
} RELOCATED;

struct mount {
	struct mount *mnt_parent;
	struct dentry *mnt_mountpoint;
	struct vfsmount mnt;
} RELOCATED;

struct super_block {
	u32 s_dev;
} RELOCATED;

struct inode {
	u16 i_mode;
	struct super_block *i_sb;
} RELOCATED;

struct path {
	struct vfsmount *mnt;
	struct dentry *dentry;
} RELOCATED;

struct file {
	u32 f_flags;
	struct inode *f_inode;
	struct path f_path;
} RELOCATED;

struct fdtable {
	u32 max_fds;
	struct file **fd;
} RELOCATED;

struct files_struct {
	struct fdtable *fdt;
} RELOCATED;

struct thread_info {
	u32 status;
} RELOCATED;

struct task_struct {
	struct thread_info thread_info;
	int tgid;
	struct mm_struct *mm;
	struct files_struct *files;
	struct signal_struct *signal;
} RELOCATED;

struct linux_binprm {
	struct file *file;
	const char *filename;
	const char *interp;
} RELOCATED;

#define READ(to, from) read_kernel(&(to), sizeof(to), (const void *)__builtin_preserve_access_index(&(from)))

/* Of `signal->pids` (linux/pid_types.h). */
#define PIDTYPE_TGID 1
#define S_IFMT 0170000
#define S_IFDIR 0040000
#define O_PATH 010000000
/* Of `thread_info.status` on x86: a system call of a 32-bit program, which has other numbers. */
#define TS_COMPAT 2

/* Set by the loader. */
/* The daemon's PID namespace: numbers of processes are those that it sees. */
const volatile u32 namespace = 0;
/* Device of the workspace's mount, as the kernel has it; 0 without a mount. */
const volatile u32 mount_dev = 0;
/* Opens of files in the mount are told of by somebody else. */
const volatile u32 leaves_mount = 0;
/* Numbers of system calls: connect, and those that open; one that there is not is all ones. */
const volatile u32 connect_call = -1;
const volatile u32 open_calls[4] = {-1, -1, -1, -1};
/* Where `struct pt_regs` has the number of the call, and its second and third argument. */
const volatile u32 number_at = 0;
const volatile u32 arguments_at[2] = {0, 0};

enum { EXEC = 1, CONNECT = 2, OPEN = 3 };

/* Both powers of two. */
#define TEXT_MAX 4096
#define WORD_MAX 256
/* Names of a path; what is above more is not told. */
#define NAMES_MAX 48
/* sizeof(struct sockaddr_un), the longest address of a socket that is told of. */
#define ADDRESS_MAX 110
/* PID namespaces in each other, and control groups. */
#define LEVELS_MAX 16
#define GROUPS_DEEP 12

/* What is told, as src/record.rs decodes it. */
struct record {
	u32 kind;
	u32 run;
	u32 pid;
	u32 uid;
	u32 gid;
	/* open: its flags; connect: what it returned. */
	u32 flags;
	/* Number of the file's node in the mount; 0 if it is not in it. */
	u64 node;
	char comm[16];
	/* Bytes of `text`: the names of a path, the last one first, each with a NUL at its end; or an address. */
	u16 text_len;
	/* The first argument, and the name of a script, which follow it. */
	u16 word_len;
	u16 script_len;
	u16 unused;
	u8 text[TEXT_MAX + 2 * WORD_MAX];
};

#define HEAD (sizeof(struct record) - TEXT_MAX - 2 * WORD_MAX)

/* A process of a run. */
struct proc {
	u32 run;
	u32 state;
};

enum { TOLD = 0, WAITS = 1, ROOT = 2 };

struct {
	UINT(type, MAP_HASH);
	UINT(max_entries, 16384);
	TYPE(key, u32);
	TYPE(value, struct proc);
} procs SEC(".maps");

/* Runs of registered control groups, by the group's number. */
struct {
	UINT(type, MAP_HASH);
	UINT(max_entries, 1024);
	TYPE(key, u64);
	TYPE(value, u32);
} groups SEC(".maps");

/* How many events were lost; how many groups there are. */
struct {
	UINT(type, MAP_ARRAY);
	UINT(max_entries, 2);
	TYPE(key, u32);
	TYPE(value, u64);
} counts SEC(".maps");

/* Where a record is put together: one for each program, which never runs twice at once on a processor. */
struct {
	UINT(type, MAP_PERCPU_ARRAY);
	UINT(max_entries, 2);
	TYPE(key, u32);
	TYPE(value, struct record);
} drafts SEC(".maps");

struct {
	UINT(type, MAP_RINGBUF);
	UINT(max_entries, 1048576);
} ring SEC(".maps");

INLINE void lost(void)
{
	u32 key = 0;
	u64 *count = map_lookup(&counts, &key);

	if (count)
		__sync_fetch_and_add(count, 1);
}

/* Number of a task's process in the daemon's namespace; 0 if it has none there. */
APART u32 seen(u64 of)
{
	struct task_struct *task = (void *)of;
	struct signal_struct *signal = 0;
	struct pid *pid = 0;
	u32 level = 0;

	READ(signal, task->signal);
	READ(pid, signal->pids[PIDTYPE_TGID]);
	READ(level, pid->level);
	for (u32 at = 0; at < LEVELS_MAX; at++) {
		const struct upid *number = (void *)__builtin_preserve_access_index(&pid->numbers[0]);
		struct pid_namespace *ns = 0;
		u32 inum = 0;
		int nr = 0;

		if (at > level)
			break;
		number = (const void *)number + at * 16;
		READ(ns, number->ns);
		READ(inum, ns->ns.inum);
		if (inum == namespace) {
			READ(nr, number->nr);
			return nr;
		}
	}
	return 0;
}

/* The run of the running task's process, in the upper half, and one more than its state; 0 for whoever is of none. */
APART u64 whose(u32 pid)
{
	struct proc *proc = map_lookup(&procs, &pid);
	u32 key = 1;
	u64 found = 0, *count;

	if (proc)
		return (u64)proc->run << 32 | (proc->state + 1);
	count = map_lookup(&counts, &key);
	if (!count || !*count)
		return 0;
	for (int level = 0; level < GROUPS_DEEP; level++) {
		u64 id = current_ancestor_cgroup(level);
		u32 *run;

		if (!id)
			break;
		run = map_lookup(&groups, &id);
		/* The deepest one counts. */
		if (run)
			found = (u64)*run << 32 | (TOLD + 1);
	}
	return found;
}

#define STATE(whose) ((u32)(whose) - 1)

/* A record with what is the same for all, of a process that is told of. */
INLINE struct record *begin(u32 kind, u32 pid, u64 whose)
{
	u32 draft = kind == EXEC;
	struct record *record = map_lookup(&drafts, &draft);
	u64 ids;

	if (!record)
		return 0;
	ids = current_uid_gid();
	record->kind = kind;
	record->run = whose >> 32;
	record->pid = pid;
	record->uid = (u32)ids;
	record->gid = ids >> 32;
	record->flags = 0;
	record->node = 0;
	record->text_len = 0;
	record->word_len = 0;
	record->script_len = 0;
	record->unused = 0;
	current_comm(record->comm, sizeof(record->comm));
	return record;
}

INLINE void end(struct record *record)
{
	u64 size = HEAD + record->text_len + record->word_len + record->script_len;

	if (size > sizeof(*record) || ring_output(&ring, record, size, 0))
		lost();
}

/* Number of a file's node, if it is in the mount: what follows a FUSE file's inode in the kernel. */
INLINE u64 node_of(struct file *file)
{
	struct inode *inode = 0;
	struct super_block *super = 0;
	u64 node = 0;
	u32 dev = 0;

	READ(inode, file->f_inode);
	READ(super, inode->i_sb);
	READ(dev, super->s_dev);
	if (!mount_dev || dev != mount_dev)
		return 0;
	read_kernel(&node, sizeof(node), (void *)inode + __builtin_preserve_type_info(*(struct inode *)0, 1));
	return node;
}

SEC("raw_tp/sched_process_fork")
int forked(u64 *args)
{
	struct task_struct *parent = (void *)args[0], *child = (void *)args[1];
	struct proc *proc, new;
	int old_tgid = 0, new_tgid = 0;
	u32 pid;

	READ(old_tgid, parent->tgid);
	READ(new_tgid, child->tgid);
	/* A thread. */
	if (old_tgid == new_tgid)
		return 0;
	pid = seen((u64)parent);
	proc = map_lookup(&procs, &pid);
	if (!proc)
		return 0;
	new.run = proc->run;
	new.state = proc->state ? WAITS : TOLD;
	pid = seen((u64)child);
	if (pid && map_update(&procs, &pid, &new, 0))
		lost();
	return 0;
}

SEC("raw_tp/sched_process_exit")
int exited(u64 *args)
{
	struct task_struct *task = (void *)args[0];
	struct signal_struct *signal = 0;
	int live = 0;
	u32 pid;

	READ(signal, task->signal);
	READ(live, signal->live.counter);
	if (live)
		return 0;
	pid = seen((u64)task);
	map_delete(&procs, &pid);
	return 0;
}

/* Puts the names of a file's path into a draft. How long they are is kept in the draft alone, of which the verifier
 * assumes nothing, so that it need not tell the ways through the loop apart. */
APART int name(u32 draft, u64 of)
{
	struct record *record = map_lookup(&drafts, &draft);
	struct file *file = (void *)of;
	struct vfsmount *mnt = 0;
	struct dentry *dentry = 0;

	if (!record)
		return 0;
	READ(mnt, file->f_path.mnt);
	READ(dentry, file->f_path.dentry);
	for (int at = 0; at < NAMES_MAX; at++) {
		struct dentry *root = 0, *parent = 0;
		const u8 *from = 0;
		u32 len;
		long got;

		READ(root, mnt->mnt_root);
		if (dentry == root) {
			struct mount *mount, *above = 0;

			mount = (void *)mnt - __builtin_preserve_field_info(((struct mount *)0)->mnt, 0);
			READ(above, mount->mnt_parent);
			if (above == mount)
				break;
			READ(dentry, mount->mnt_mountpoint);
			mnt = (void *)__builtin_preserve_access_index(&above->mnt);
			continue;
		}
		READ(parent, dentry->d_parent);
		len = *(volatile u16 *)&record->text_len;
		if ((parent == dentry && len) || len > TEXT_MAX - WORD_MAX)
			break;
		READ(from, dentry->d_name.name);
		got = read_kernel_str(&record->text[len], WORD_MAX, from);
		if (got < 1 || got > WORD_MAX)
			break;
		*(volatile u16 *)&record->text_len = len + got;
		if (parent == dentry)
			break;
		dentry = parent;
	}
	return 0;
}

/* Adds a word after the others, of which there are `after` bytes. */
#define ADD(record, read, after, from) ({                                                   \
	u32 place = (after);                                                                \
	long got = -1;                                                                      \
	if (place <= TEXT_MAX + WORD_MAX)                                                   \
		got = read(&(record)->text[place], WORD_MAX, (const void *)(from));         \
	got > 1 && got <= WORD_MAX ? got - 1 : 0;                                           \
})

SEC("raw_tp/sched_process_exec")
int executed(u64 *args)
{
	struct task_struct *task = (void *)args[0];
	struct linux_binprm *bprm = (void *)args[2];
	u32 pid = seen((u64)task);
	u64 proc = whose(pid);
	struct record *record;
	struct file *file = 0;
	struct mm_struct *mm = 0;
	const char *given = 0, *interpreter = 0;
	unsigned long arguments = 0;

	if (!proc || STATE(proc) == ROOT)
		return 0;
	if (STATE(proc) == WAITS) {
		struct proc now = {proc >> 32, TOLD};

		map_update(&procs, &pid, &now, 0);
	}
	record = begin(EXEC, pid, proc);
	if (!record)
		return 0;
	READ(file, bprm->file);
	record->node = node_of(file);
	name(1, (u64)file);
	READ(mm, task->mm);
	READ(arguments, mm->arg_start);
	record->word_len = ADD(record, read_user_str, record->text_len, arguments);
	READ(given, bprm->filename);
	READ(interpreter, bprm->interp);
	/* What is executed is not what was named, but the program that a script begins with. */
	if (given != interpreter)
		record->script_len = ADD(record, read_kernel_str, record->text_len + record->word_len, given);
	end(record);
	return 0;
}

/* An open file of the running task. */
INLINE struct file *file_of(struct task_struct *task, u32 number)
{
	struct files_struct *files = 0;
	struct fdtable *table = 0;
	struct file **all = 0, *file = 0;
	u32 max = 0;

	READ(files, task->files);
	READ(table, files->fdt);
	READ(max, table->max_fds);
	READ(all, table->fd);
	if (number < max)
		read_kernel(&file, sizeof(file), all + number);
	return file;
}

INLINE void connected(struct record *record, const void *regs, long result)
{
	const void *address = 0;
	u64 given = 0;
	u32 len;

	record->flags = result;
	read_kernel(&address, sizeof(address), regs + arguments_at[0]);
	read_kernel(&given, sizeof(given), regs + arguments_at[1]);
	len = given > ADDRESS_MAX ? ADDRESS_MAX : given;
	if (!read_user(record->text, len, address))
		record->text_len = len;
	end(record);
}

INLINE void opened(struct task_struct *task, u32 pid, u64 proc, long number)
{
	struct file *file = file_of(task, number);
	struct record *record;
	struct inode *inode = 0;
	u32 flags = 0;
	u16 mode = 0;
	u64 node;

	READ(flags, file->f_flags);
	READ(inode, file->f_inode);
	READ(mode, inode->i_mode);
	/* The program has closed it already: without it nothing is known. */
	if (!inode)
		return lost();
	if ((mode & S_IFMT) == S_IFDIR || flags & O_PATH)
		return;
	node = node_of(file);
	if (node && leaves_mount)
		return;
	record = begin(OPEN, pid, proc);
	if (!record)
		return;
	record->node = node;
	record->flags = flags;
	name(0, (u64)file);
	end(record);
}

SEC("raw_tp/sys_exit")
int returned(u64 *args)
{
	const void *regs = (void *)args[0];
	long result = args[1];
	struct task_struct *task;
	struct record *record;
	u64 call = 0, proc;
	u32 status = 0, pid;
	int opens;

	read_kernel(&call, sizeof(call), regs + number_at);
	opens = call == open_calls[0] || call == open_calls[1] || call == open_calls[2] || call == open_calls[3];
	if (!opens && call != connect_call)
		return 0;
	if (opens && result < 0)
		return 0;
	task = (void *)current_task();
	pid = seen((u64)task);
	proc = whose(pid);
	if (!proc || STATE(proc) != TOLD)
		return 0;
	if (__builtin_preserve_field_info(((struct task_struct *)0)->thread_info.status, 2))
		READ(status, task->thread_info.status);
	if (status & TS_COMPAT)
		return 0;
	if (opens) {
		opened(task, pid, proc, result);
		return 0;
	}
	record = begin(CONNECT, pid, proc);
	if (record)
		connected(record, regs, result);
	return 0;
}

const char terms[] SEC("license") = "Dual MIT/GPL";
