/* What has come at many sockets, read in one call, and one question to many, sent in one: the answers to bulk requests go straight into columns, and of the rest the
 * replies at the beginning are told apart. socket_reader.py does the latter socket by socket.
 *
 * Nothing here waits, and nothing is kept between two calls.
 */
#include "../../../controller/_module.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "../../../controller/openflow/_meter_stats.h"

typedef int64_t i64;

typedef struct { /* what one socket had: NOTHING, 0 when it has ended; how many whole replies are at the beginning */
    i64 octets, replies, only_replies;
} Arrival;

typedef struct {
    i64 kind, xid, start, end;
} Reply;

typedef struct { /* who was called: ``index_of`` is by descriptor, the others by number; -1 for those that are not, or any more */
    i64 descriptors, *index_of;
    const i64 *xid;
    double *at_s;
    i64 *left; /* how many are awaited */
} BulkRequest;

typedef struct { /* who was called for its meters, by number: each's end at ``ends`` of ``stats``, and ``filled`` have come; of the
                  * next part ``kept`` octets have, to row ``slot`` of ``parts`` (-1: none is kept) */
    BulkRequest roll;
    const i64 *ends;
    MeterStats *stats;
    uint32_t *meter_id;
    i64 *filled, *kept;
    const i64 *slot;
    uint8_t *parts;
    i64 part_octets;
} MeterCall;

enum { NOTHING = -1, HEADER_BYTES = 8, MULTIPART_BYTES = 16, MULTIPART_REPLY = 19, BARRIER_REPLY = 21, METER = 9, MORE = 1 };
enum { MAX_OCTETS_ASKED = 64, TOO_LONG = -2 };

static inline i64 number_of(const BulkRequest *roll, i64 fd) { return fd < roll->descriptors ? roll->index_of[fd] : -1; }

static i64 noted(const BulkRequest *roll, i64 fd, double now_s, i64 octets)
{
    roll->at_s[roll->index_of[fd]] = now_s;
    roll->index_of[fd] = -1;
    --*roll->left;
    return octets;
}

static int begins(const uint8_t *octets, i64 version, i64 kind, i64 length, i64 xid)
{
    return octets[0] == version && octets[1] == kind && (i64)get(octets + 2, 2) == length && (i64)get(octets + 4, 4) == xid;
}

/* Return how many meters a message has, by its head, if it is the next part of those that are awaited: it has some of one band, and
 * says that more follow unless these are the last. Else 0. */
static i64 meters_of_part(const MeterCall *call, i64 number, const uint8_t *head, i64 version)
{
    i64 length = (i64)get(head + 2, 2), meters = (length - MULTIPART_BYTES) / STATS_BYTES;
    i64 left = call->ends[number] - (number ? call->ends[number - 1] : 0) - call->filled[number];
    i64 ours = MULTIPART_BYTES + meters * STATS_BYTES;
    if (meters < 1 || meters > left || !begins(head, version, MULTIPART_REPLY, ours, call->roll.xid[number]))
        return 0;
    return get(head + 8, 2) == METER && (int)(get(head + 10, 2) & MORE) == (meters < left) ? meters : 0;
}

/* Take what a socket has first if it is the next part of the meters that are awaited. Return how many octets it has, or 0. */
static i64 take_meters(const MeterCall *call, i64 fd, const uint8_t *octets, i64 length, i64 version, double now_s)
{
    i64 number = number_of(&call->roll, fd);
    if (number < 0 || length < MULTIPART_BYTES)
        return 0;
    i64 meters = meters_of_part(call, number, octets, version), ours = MULTIPART_BYTES + meters * STATS_BYTES;
    i64 first = (number ? call->ends[number - 1] : 0) + call->filled[number];
    MeterStats *to = call->stats + first;
    if (!meters || length < ours || decode_meter_stats(octets + MULTIPART_BYTES, octets + ours, to) != octets + ours)
        return 0;
    for (i64 i = 0; i < meters; i++)
        call->meter_id[first + i] = to[i].meter_id;
    call->filled[number] += meters;
    return first + meters == call->ends[number] ? noted(&call->roll, fd, now_s, ours) : ours;
}

/* Keep what has come of the next part, and return whether it is that: nothing follows it yet. Of less than a head it may be the
 * beginning of another message, which is seen as soon as more has come. */
static int keep_part(const MeterCall *call, i64 fd, const uint8_t *octets, i64 length, i64 version)
{
    i64 number = number_of(&call->roll, fd);
    if (number < 0 || call->slot[number] < 0)
        return 0;
    if (length < MULTIPART_BYTES) {
        if (octets[0] != version || (length > 1 && octets[1] != MULTIPART_REPLY))
            return 0;
    } else {
        i64 meters = meters_of_part(call, number, octets, version);
        if (!meters || length >= MULTIPART_BYTES + meters * STATS_BYTES)
            return 0;
    }
    memcpy(call->parts + call->slot[number] * call->part_octets, octets, (size_t)length);
    call->kept[number] = length;
    return 1;
}

/* The same for the reply to a barrier. */
static i64 take_barrier(const BulkRequest *roll, i64 fd, const uint8_t *octets, i64 length, i64 version, double now_s)
{
    i64 number = number_of(roll, fd);
    if (number < 0 || length < HEADER_BYTES || !begins(octets, version, BARRIER_REPLY, HEADER_BYTES, roll->xid[number]))
        return 0;
    return noted(roll, fd, now_s, HEADER_BYTES);
}

/* Find the whole replies at the beginning, up to ``most``; return whether nothing else is there. ``kinds`` has a bit for each
 * type that is one. */
static int find_replies(const uint8_t *octets, i64 length, i64 version, i64 kinds, i64 most, Reply *found, i64 *count)
{
    i64 start = 0;
    for (*count = 0; *count < most; (*count)++) {
        const uint8_t *head = octets + start;
        if (length - start < HEADER_BYTES || (i64)get(head + 2, 2) > length - start)
            return 1;
        i64 kind = head[1], ours = (i64)get(head + 2, 2), least = kind == MULTIPART_REPLY ? MULTIPART_BYTES : HEADER_BYTES;
        if (head[0] != version || kind > 62 || !(kinds >> kind & 1) || ours < least)
            return 0;
        found[*count] = (Reply){kind, (i64)get(head + 4, 4), start, start + ours};
        start += ours;
    }
    return 0;
}

/* Read ``most_octets`` at most from a socket, and behind what is kept of the next part first; take the part once it is whole. Return
 * how many octets are at ``to`` now, 0 where the socket has ended, or NOTHING. */
static i64 receive(const MeterCall *call, i64 fd, uint8_t *to, i64 most_octets, i64 version, double now_s)
{
    i64 number = number_of(&call->roll, fd), kept = number < 0 ? 0 : call->kept[number];
    uint8_t *part = kept ? call->parts + call->slot[number] * call->part_octets : NULL;
    if (kept && kept < MULTIPART_BYTES) { /* how long it is does not show yet */
        i64 more = recv((int)fd, to + kept, (size_t)(most_octets - kept), MSG_DONTWAIT);
        if (more <= 0)
            return more < 0 && (errno == EAGAIN || errno == EINTR) ? NOTHING : 0;
        memcpy(to, part, (size_t)kept);
        call->kept[number] = 0;
        return kept + more;
    }
    i64 whole = kept ? (i64)get(part + 2, 2) : 0, missing = whole - kept;
    struct iovec into[] = {{part + kept, (size_t)missing}, {to, (size_t)(most_octets - whole)}};
    struct msghdr message = {.msg_iov = into + !kept, .msg_iovlen = 1 + (kept > 0)};
    i64 octets = recvmsg((int)fd, &message, MSG_DONTWAIT);
    if (octets < 0)
        return errno == EAGAIN || errno == EINTR ? NOTHING : 0;
    if (!kept || !octets)
        return octets;
    call->kept[number] = octets < missing ? kept + octets : 0;
    octets -= missing;
    if (octets < 0)
        return NOTHING;
    if (!take_meters(call, fd, part, whole, version, now_s)) {
        memmove(to + whole, to, (size_t)octets);
        memcpy(to, part, (size_t)whole);
        octets += whole;
    }
    return octets ? octets : NOTHING;
}

/* Read ``most_octets`` at most from each socket ``fd`` (sockets,). What is no answer to a bulk request stays in ``room``, one
 * behind the other, and up to ``most`` replies are found in each. Return how many sockets were read: all, or those whose octets
 * and replies fit in any case. */
i64 dets_receive(PyObject *columns, double now_s, i64 most_octets, i64 version, i64 kinds, i64 most)
{
    if (!side_by_side(columns, 19))
        return NOT_SIDE_BY_SIDE;
    const i64 *fd = column(columns, 0);
    uint8_t *to = column(columns, 1), *end = to + rows_of(columns, 1);
    Arrival *arrivals = column(columns, 2);
    Reply *replies = column(columns, 3);
    MeterCall meters = {{rows_of(columns, 4), column(columns, 4), column(columns, 5), column(columns, 6), column(columns, 7)},
                        column(columns, 8), column(columns, 9), column(columns, 10), column(columns, 11), column(columns, 12),
                        column(columns, 13), column(columns, 14), width_of(columns, 14)};
    BulkRequest barriers = {rows_of(columns, 15), column(columns, 15), column(columns, 16), column(columns, 17), column(columns, 18)};
    i64 sockets = rows_of(columns, 0), left = rows_of(columns, 3), done = 0;
    for (; done < sockets && end - to >= most_octets && left >= most; done++) {
        Arrival *one = arrivals + done;
        i64 octets = receive(&meters, fd[done], to, most_octets, version, now_s), answers = 0, taken;
        *one = (Arrival){octets, 0, 0};
        if (octets <= 0)
            continue;
        do {
            taken = take_meters(&meters, fd[done], to + answers, octets - answers, version, now_s);
            taken += take_barrier(&barriers, fd[done], to + answers + taken, octets - answers - taken, version, now_s);
            answers += taken;
        } while (taken);
        if (answers == octets || keep_part(&meters, fd[done], to + answers, octets - answers, version)) {
            one->octets = NOTHING;
            continue;
        }
        if (answers)
            memmove(to, to + answers, (size_t)(octets - answers));
        one->octets = octets -= answers;
        one->only_replies = find_replies(to, octets, version, kinds, most, replies, &one->replies);
        to += octets;
        replies += one->replies;
        left -= one->replies;
    }
    return done;
}

/* Send ``message`` (octets,) to each socket ``fd`` (sockets,) with its ``xid`` (sockets,) in the header; ``taken`` (sockets,) is how
 * many octets went out, 0 where the socket has no room or has ended. */
i64 dets_ask(PyObject *columns)
{
    if (!side_by_side(columns, 4))
        return NOT_SIDE_BY_SIDE;
    const i64 *fd = column(columns, 0), *xid = column(columns, 1);
    i64 sockets = rows_of(columns, 0), octets = rows_of(columns, 2), *taken = column(columns, 3);
    uint8_t message[MAX_OCTETS_ASKED];
    if (octets < HEADER_BYTES || octets > MAX_OCTETS_ASKED)
        return TOO_LONG;
    memcpy(message, column(columns, 2), (size_t)octets);
    for (i64 i = 0; i < sockets; i++) {
        for (int at = 0; at < 4; at++)
            message[4 + at] = (uint8_t)(xid[i] >> (24 - 8 * at));
        taken[i] = send((int)fd[i], message, (size_t)octets, MSG_DONTWAIT | MSG_NOSIGNAL);
        taken[i] = taken[i] < 0 ? 0 : taken[i];
    }
    return sockets;
}

PASS(dets_receive, REAL(1), WHOLE(2), WHOLE(3), WHOLE(4), WHOLE(5))
PASS(dets_ask)
MODULE(_sockets, OF(dets_receive), OF(dets_ask))
