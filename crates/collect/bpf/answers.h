// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * How an answer went, by its first bytes, where the configuration asks for it (`[services] read-answers`). The bytes lie on the stack of
 * the program while it looks at them. A number for the protocol and one for the status leave it, and nothing else.
 *
 * They are read from the buffer of the system call that sends, which has been copied by now and is still there. Not read is what
 * another call sends (sendfile, splice, sendmmsg, io_uring), what the kernel encrypts (kTLS), and calls of 32-bit programs.
 * HTTP/2, and with it gRPC, has its status in compressed headers.
 */
#ifndef MITRA_ANSWERS_H
#define MITRA_ANSWERS_H

#include "conns.h"

/* What is read of an answer at most. */
#define FIRST_BYTES 16
/* Zeros follow, so that a message that begins in the last of them can be looked at. */
#define FIRST_BYTES_ROOM 24

/* Numbers of system calls (arch/x86/entry/syscalls/syscall_64.tbl, include/uapi/asm-generic/unistd.h). */
enum x86_call { X86_WRITE = 1, X86_WRITEV = 20, X86_SENDTO = 44, X86_SENDMSG = 46 };
enum arm64_call { ARM64_WRITE = 64, ARM64_WRITEV = 66, ARM64_SENDTO = 206, ARM64_SENDMSG = 211 };
#define ENOSYS 38

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct pt_regs___x86 {
	unsigned long si;
	unsigned long ax;
	unsigned long orig_ax;
};
struct pt_regs___arm64 {
	__u64 regs[31];
	__u64 orig_x0;
	int syscallno;
};
#pragma clang attribute pop

/* As 64-bit programs have them: the interface of the kernel, which no configuration moves. */
struct user_iovec {
	__u64 base;
	__u64 len;
};
struct user_message {
	__u64 name;
	__u64 name_len;
	__u64 iov;
};

/* What the second argument of the call points to. */
enum argument { ARGUMENT_OTHER, ARGUMENT_BYTES, ARGUMENT_IOVEC, ARGUMENT_MESSAGE };

/*
 * The second argument of the system call that this thread is in. Sends of a ring may run as another call returns: on x86 the register
 * of the result holds ENOSYS until there is one, on arm64 the first argument.
 */
static __always_inline enum argument second_argument(__u64 *argument)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct pt_regs___arm64 *arm;
	struct pt_regs___x86 *x86;

	if (task->flags & PF_KTHREAD)
		return ARGUMENT_OTHER;
	x86 = (void *)bpf_task_pt_regs(task);
	arm = (void *)x86;
	if (!x86)
		return ARGUMENT_OTHER;
	if (bpf_core_field_exists(x86->orig_ax)) {
		if ((__s64)BPF_CORE_READ(x86, ax) != -ENOSYS)
			return ARGUMENT_OTHER;
		*argument = BPF_CORE_READ(x86, si);
		switch (BPF_CORE_READ(x86, orig_ax)) {
		case X86_WRITE:
		case X86_SENDTO:
			return ARGUMENT_BYTES;
		case X86_WRITEV:
			return ARGUMENT_IOVEC;
		case X86_SENDMSG:
			return ARGUMENT_MESSAGE;
		}
	} else if (bpf_core_field_exists(arm->syscallno)) {
		if (BPF_CORE_READ(arm, regs[0]) != BPF_CORE_READ(arm, orig_x0))
			return ARGUMENT_OTHER;
		*argument = BPF_CORE_READ(arm, regs[1]);
		switch (BPF_CORE_READ(arm, syscallno)) {
		case ARM64_WRITE:
		case ARM64_SENDTO:
			return ARGUMENT_BYTES;
		case ARM64_WRITEV:
			return ARGUMENT_IOVEC;
		case ARM64_SENDMSG:
			return ARGUMENT_MESSAGE;
		}
	}
	return ARGUMENT_OTHER;
}

/* Reads how what was sent begins. `bytes` is zeroed, and has room for FIRST_BYTES_ROOM. */
static __always_inline bool read_first(__u8 *bytes, __u32 sent)
{
	struct user_message message;
	struct user_iovec first;
	__u64 from = 0;
	enum argument argument = second_argument(&from);
	__u32 len = sent;

	if (argument == ARGUMENT_OTHER)
		return false;
	if (argument == ARGUMENT_MESSAGE) {
		if (bpf_probe_read_user(&message, sizeof(message), (void *)from))
			return false;
		from = message.iov;
	}
	if (argument != ARGUMENT_BYTES) {
		if (bpf_probe_read_user(&first, sizeof(first), (void *)from))
			return false;
		from = first.base;
		if (first.len < len)
			len = first.len;
	}
	if (len > FIRST_BYTES)
		len = FIRST_BYTES;
	barrier_var(len);
	return len && len <= FIRST_BYTES && !bpf_probe_read_user(bytes, len, (void *)from);
}

#define ANSWER(protocol, status) ((__u32)(protocol) << 8 | (status))
#define WORD(a, b, c, d) ((__u32)(a) | (__u32)(b) << 8 | (__u32)(c) << 16 | (__u32)(d) << 24)

static __always_inline __u32 word_at(const __u8 *b)
{
	return WORD(b[0], b[1], b[2], b[3]);
}

static __always_inline __u32 big_endian(const __u8 *b)
{
	return WORD(b[3], b[2], b[1], b[0]);
}

static __always_inline bool is_digit(__u8 c)
{
	return c >= '0' && c <= '9';
}

static __always_inline bool is_capital(__u8 c)
{
	return c >= 'A' && c <= 'Z';
}

/* "HTTP/1.1 500 ". */
static __always_inline __u32 http_answer(const __u8 *b)
{
	if (word_at(b) != WORD('H', 'T', 'T', 'P') || b[4] != '/' || b[5] != '1' || b[6] != '.' || !is_digit(b[7]) ||
	    b[8] != ' ' || !is_digit(b[10]) || !is_digit(b[11]))
		return 0;
	switch (b[9]) {
	case '2':
	case '3':
		return ANSWER(PROTOCOL_HTTP, STATUS_OK);
	case '4':
		return ANSWER(PROTOCOL_HTTP, STATUS_CLIENT_ERROR);
	case '5':
		return ANSWER(PROTOCOL_HTTP, STATUS_SERVER_ERROR);
	}
	/* How it goes is still to come. */
	return ANSWER(PROTOCOL_HTTP, STATUS_UNKNOWN);
}

/*
 * RESP: "+OK", ":1", "$-1", "*2", and "-ERR unknown command". An error begins with a word in capitals, but one that a script made:
 * that counts where other answers were RESP. By some a client is told to go elsewhere, and the server is well.
 */
static __always_inline __u32 redis_answer(const __u8 *b, bool is_known)
{
	__u32 word = WORD(b[1], b[2], b[3], b[4]);

	switch (b[0]) {
	case '-':
		if (!is_known && !(is_capital(b[1]) && is_capital(b[2]) && is_capital(b[3])))
			return 0;
		if (word == WORD('M', 'O', 'V', 'E') || word == WORD('A', 'S', 'K', ' ') || word == WORD('N', 'O', 'S', 'C'))
			return ANSWER(PROTOCOL_REDIS, STATUS_CLIENT_ERROR);
		return ANSWER(PROTOCOL_REDIS, STATUS_SERVER_ERROR);
	case '+':
		return is_capital(b[1] & ~0x20) ? ANSWER(PROTOCOL_REDIS, STATUS_OK) : 0;
	case ':':
	case '$':
	case '*':
	case '%':
		return is_digit(b[1]) || (b[1] == '-' && is_digit(b[2])) ? ANSWER(PROTOCOL_REDIS, STATUS_OK) : 0;
	}
	return 0;
}

/* ParseComplete, BindComplete, CloseComplete or NoData, which come before the answer proper and hold nothing. */
static __always_inline bool is_empty_message(const __u8 *b)
{
	return ((b[0] >= '1' && b[0] <= '3') || b[0] == 'n') && big_endian(b + 1) == 4;
}

/* Messages of a letter and a length. ErrorResponse is 'E', and its first field the severity, 'S'. */
static __always_inline __u32 postgresql_answer(const __u8 *b)
{
	__u32 at = 0, len;

	if (is_empty_message(b)) {
		at = 5;
		if (is_empty_message(b + 5)) {
			at = 10;
			if (is_empty_message(b + 10))
				/* Of the next one the letter is all there is. */
				return ANSWER(PROTOCOL_POSTGRESQL, b[15] == 'E' ? STATUS_SERVER_ERROR : STATUS_OK);
		}
	}
	len = at == 10 ? big_endian(b + 11) : at == 5 ? big_endian(b + 6) : big_endian(b + 1);
	if ((at == 10 ? b[10] == 'E' && b[15] == 'S' : at == 5 ? b[5] == 'E' && b[10] == 'S' : b[0] == 'E' && b[5] == 'S') &&
	    len > 4 && len < 0x10000)
		return ANSWER(PROTOCOL_POSTGRESQL, STATUS_SERVER_ERROR);
	if (at)
		return ANSWER(PROTOCOL_POSTGRESQL, STATUS_OK);
	switch (b[0]) {
	case 'T': /* RowDescription */
	case 'D': /* DataRow */
	case 'C': /* CommandComplete */
	case 'I': /* EmptyQueryResponse */
	case 'Z': /* ReadyForQuery */
	case 'R': /* Authentication */
	case 'N': /* NoticeResponse */
	case 'S': /* ParameterStatus */
	case 't': /* ParameterDescription */
	case 'G': /* CopyInResponse */
	case 'H': /* CopyOutResponse */
		return len >= 4 && len < 0x10000 ? ANSWER(PROTOCOL_POSTGRESQL, STATUS_OK) : 0;
	}
	return 0;
}

/*
 * A length of three bytes, a number that grows from the request's 0, and what the answer is: 0xff and "#" before the SQLSTATE of an
 * error, 0 for OK, or how many columns follow.
 */
static __always_inline __u32 mysql_answer(const __u8 *b)
{
	__u32 len = WORD(b[0], b[1], b[2], 0), number = b[3];

	if (!number || len >= 0x10000)
		return 0;
	if (b[4] == 0xff && b[7] == '#' && len >= 9)
		return ANSWER(PROTOCOL_MYSQL, STATUS_SERVER_ERROR);
	if (number == 1 && ((b[4] == 0 && len >= 7) || (b[4] && b[4] <= 250 && len == 1)))
		return ANSWER(PROTOCOL_MYSQL, STATUS_OK);
	return 0;
}

static __always_inline __u32 memcached_answer(const __u8 *b)
{
	switch (word_at(b)) {
	case WORD('S', 'E', 'R', 'V'):
		return word_at(b + 4) == WORD('E', 'R', '_', 'E') ? ANSWER(PROTOCOL_MEMCACHED, STATUS_SERVER_ERROR) : 0;
	case WORD('C', 'L', 'I', 'E'):
		return word_at(b + 4) == WORD('N', 'T', '_', 'E') ? ANSWER(PROTOCOL_MEMCACHED, STATUS_CLIENT_ERROR) : 0;
	case WORD('E', 'R', 'R', 'O'): /* a command that there is not */
		return b[4] == 'R' && b[5] == '\r' ? ANSWER(PROTOCOL_MEMCACHED, STATUS_CLIENT_ERROR) : 0;
	case WORD('V', 'A', 'L', 'U'):
		return b[4] == 'E' && b[5] == ' ' ? ANSWER(PROTOCOL_MEMCACHED, STATUS_OK) : 0;
	case WORD('E', 'N', 'D', '\r'):
	case WORD('S', 'T', 'O', 'R'):
	case WORD('N', 'O', 'T', '_'):
	case WORD('D', 'E', 'L', 'E'):
	case WORD('E', 'X', 'I', 'S'):
	case WORD('T', 'O', 'U', 'C'):
		return ANSWER(PROTOCOL_MEMCACHED, STATUS_OK);
	}
	return 0;
}

static __always_inline __u32 known_answer(const __u8 *b, __u32 protocol)
{
	__u32 answer = http_answer(b);

	if (!answer)
		answer = redis_answer(b, protocol == PROTOCOL_REDIS);
	if (!answer)
		answer = postgresql_answer(b);
	if (!answer)
		answer = mysql_answer(b);
	if (!answer)
		answer = memcached_answer(b);
	return answer;
}

/* Counts how the answer went that has just begun. */
static __noinline int note_status(struct service_slot *slot, __u32 sent, bool is_readable)
{
	__u8 bytes[FIRST_BYTES_ROOM] = {};
	__u32 answer = 0, protocol, status;

	if (!slot)
		return 0;
	if (is_readable && read_first(bytes, sent))
		answer = known_answer(bytes, slot->protocol);
	protocol = answer >> 8;
	status = answer & 0xff;
	if (protocol && slot->protocol != protocol)
		slot->protocol = protocol;
	if (status < STATUSES)
		add(&slot->answers[status], 1);
	return 0;
}

#endif
