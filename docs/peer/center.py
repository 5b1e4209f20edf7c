#!/usr/bin/env python3
"""Reads the traffic of a key distribution centre and of its group by docs/WIRE.md alone, sections 21 and 22.

    python3 docs/peer/center.py [the repository's folder]

As read.py, whose notation it uses. Given the centre's secret, each member's run and the seeds of their signing keys, it
computes all else: long-term keys, answers, pair keys, tags, epochs. It judges each question and message of
keys/vectors/center.json as a centre, a leader and members do.
"""
import hmac
import json
import pathlib
import sys

from cryptography.exceptions import InvalidTag
from wire import (
    AESGCM, Reader, Refused, Veil, check, covers, derive, ed25519, frames, matches, order, overlaps, pattern, proof, sha256,
    transcript, u8, u16, u32, u64, verified)

ACTS = {1: "pub", 2: "sub", 3: "both", 4: "evict", 5: "lead"}
ZEROS, NO_EPOCH = bytes(32), bytes(12)


def prf(key, label, *parts):  # 21
    parts = (label.encode(), *parts)
    return hmac.digest(key, b"".join(u64(len(part)) + part for part in parts), "sha256")


class Registration:  # 21
    def __init__(self, data):
        check(len(data) <= 1024, "a registration's length")
        self.data, self.principal, r = data, sha256(data), Reader(data)
        magic = r.take(6)
        check(magic in (b"SCREG1", b"SCREG2"), "a registration")
        self.realm, self.serial, self.name = r.take(32), r.int(8), r.bytes16(64).decode()
        self.raw = r.take(32)
        self.exchange = r.take(32) if magic == b"SCREG2" else None
        self.key = ed25519.Ed25519PublicKey.from_public_bytes(self.raw)
        self.since, self.until = (int.from_bytes(r.take(8), "big", signed=True) for _ in range(2))
        self.rights, last, n = [], None, r.int(2)
        check(n <= 64, "64 rights")
        for _ in range(n):
            group, act, text = r.bytes16(64), r.int(1), r.bytes16(255).decode()
            check(act in ACTS, "an unknown act")
            place = (group, act, order(pattern(text)))
            check(last is None or last < place, "rights do not ascend")
            self.rights.append((group.decode(), ACTS[act], text))
            last = place
        r.end()

    def grants(self, group, *acts):
        return [pattern(text) for of, act, text in self.rights if of == group and act in acts]

    def groups(self): return {group for group, _, _ in self.rights}
    def leads(self, group): return bool(self.grants(group, "lead"))
    def good_at(self, utc): return self.since <= utc <= self.until

    def may_evict(self, other):
        """In all groups of the other one, all of its rights."""
        may = {group: self.grants(group, "evict") for group in other.groups()}
        return all(any(covers(e, pattern(text)) for e in may[group]) for group, _, text in other.rights)

    def reads(self, group, patterns):
        mine = self.grants(group, "sub", "both")
        return all(any(covers(grant, p) for grant in mine) for p in patterns)

    def may_publish(self, group, topic):
        return any(matches(p, topic) for p in self.grants(group, "pub", "both"))


class Centre:
    """21: what follows from the centre's secret, and what it answers."""

    REASONS = {1: "unknown", 2: "revoked", 3: "expired", 4: "denied", 5: "stale", 6: "not stored", 7: "who asks is revoked"}
    ASKS = {1: "PAIR", 3: "NEWS", 5: "REVOKE", 8: "CHECK"}
    ANSWERS = {2: "GRANTED", 4: "REVOKED", 6: "DONE", 7: "REFUSED"}
    LENGTHS = {"PAIR": 185, "CHECK": 185, "NEWS": 512, "REVOKE": 512}

    def __init__(self, secret, utc):
        self.secret, self.utc = secret, utc
        self.master, self.master_a = (derive(secret, b"", b"sealcast/v1/lm/master", which) for which in (b"x", b"a"))
        self.realm = derive(secret, b"", b"sealcast/v1/centre/realm")
        self.people, self.revoked, self.open, self.sigmas = {}, [], {}, {}

    def bootstrap(self, group): return derive(self.secret, b"", b"sealcast/v1/centre/bootstrap", group.encode())
    def exchange(self, principal): return prf(self.master, "sealcast/v1/lm/x", principal)
    def authentication(self, principal): return prf(self.master_a, "sealcast/v1/lm/a", principal)
    def sigma(self, i, j, salt): return prf(self.exchange(j), "sealcast/v1/lm/key", i, j, salt)

    # 21.1
    def head(self, datagram):
        check(datagram[:2] == b"\x5c\x02", "an open datagram")
        r = Reader(datagram[2:])
        check(r.take(8) == b"SCKDC1\0\0", "a message of the centre's")
        return r, r.int(1), r.take(32), r.take(16)

    def asked(self, datagram):
        r, kind, asker, nonce = self.head(datagram)
        name, message = self.ASKS[kind], datagram[2:]
        check(len(message) == self.LENGTHS[name], f"the length of {name}")
        tag = prf(self.authentication(asker), "sealcast/v1/kdc/ask", message[:-32])
        check(asker in self.people and tag == message[-32:], "the tag of a question")
        r.rest = r.rest[:-32]
        content = r.int(8) if name == "NEWS" else r.take(32)
        if name == "REVOKE":
            r.bytes16(200).decode()
        check(not any(r.rest), "zeros")
        self.open[nonce] = (name, asker, content)
        return name, self.people[asker].name

    def judge(self, name, asker, content):
        """Why it may not be asked; 0 if it may."""
        me, other = self.people[asker], None if name == "NEWS" else self.people.get(content)
        check(me.good_at(self.utc), "a question in its time")
        if asker in self.revoked:
            return 7
        if name == "NEWS":
            return 0 if any(me.leads(group) for group in me.groups()) else 4
        if other is None:
            return 1
        if name == "REVOKE":
            return 0 if me.may_evict(other) else 4
        if name == "PAIR" and not any(me.leads(group) for group in other.groups()):
            return 4
        return 2 if content in self.revoked else 0 if other.good_at(self.utc) else 3

    def answered(self, datagram):
        r, kind, asker, nonce = self.head(datagram)
        name, message = self.ANSWERS[kind], datagram[2:]
        asked, who, content = self.open.pop(nonce)
        check(who == asker and len(message) <= self.LENGTHS[asked], "an answer is no longer than its question")
        why, said = self.judge(asked, asker, content), f"{name} to {self.people[asker].name}"
        check((name == "REFUSED") == bool(why), f"{asked} is {'refused' if why else 'answered'}")
        if asked == "REVOKE" and not why and content not in self.revoked:
            self.revoked.append(content)
        if name == "GRANTED":
            check(asked == "PAIR" and len(message) == 145, "the answer to PAIR")
            number, salt, masked, proved = r.int(8), r.take(16), r.take(32), r.take(32)
            mask = prf(self.exchange(asker), "sealcast/v1/lm/mask", asker, content, salt)
            sigma = bytes(a ^ b for a, b in zip(masked, mask))
            confirms = prf(sigma, "sealcast/v1/lm/kc")
            parts = asker, content, salt, nonce, masked, confirms, u64(number)
            check(proved == prf(self.authentication(asker), "sealcast/v1/lm/answer", *parts), "the proof of an answer")
            check(sigma == self.sigma(asker, content, salt), "the other one's key")
            check(number == len(self.revoked), "the newest revocation")
            self.sigmas[asker, content] = salt
            r.end()
            return name, said, sigma
        tag = prf(self.authentication(asker), "sealcast/v1/kdc/answer", message[:-32])
        check(tag == message[-32:], "the tag of an answer")
        r.rest = r.rest[:-32]
        if name == "REFUSED":
            check(self.ASKS[r.int(1)] == asked and r.int(8) == len(self.revoked), "what was asked")
            check(r.int(1) == why, f"refused as {self.REASONS[why]}")
            said += f": {self.REASONS[why]}"
        else:
            number = self.revoked.index(content) + 1 if asked == "REVOKE" else len(self.revoked)
            check(r.int(8) == number, "the number of a revocation")
        if name == "REVOKED":
            rows = [(r.int(8), r.take(32)) for _ in range(r.int(2))]
            check(rows == list(enumerate(self.revoked, 1))[content:][:10], "revocations since")
        r.end()
        return name, said, None

    # 21.2
    def log(self, log):
        link, rows = ZEROS, []
        for it in log["rows"]:
            row = bytes.fromhex(it["row"])
            link = transcript("sealcast/v1/centre/log", link, row)
            check(link.hex() == it["link"], "the link of a row")
            rows.append((row, link))
            r = Reader(row)
            if r.int(1) == 1:
                check(Registration(r.rest).realm == self.realm, "a registration of this centre")
            else:
                check(row[0] == 2 and r.take(32) in self.revoked and r.int(8) == 1, "a revocation")
                r.take(8)
                check(r.bytes16(64) == b"alice" and r.bytes16(200) == b"lost laptop", "by whom and why")
                r.end()
        feed = Veil(derive(self.secret, b"", b"sealcast/v1/centre/feed"))
        messages = [bytes.fromhex(log[name]) for name in ("request", "answer", "diverged")]
        check(all(len(it) == 2 + 1200 for it in messages), "1,200 bytes behind 5C 02")
        request, answer, diverged = (Reader(feed.open(it)[1]) for it in messages)
        check(request.int(1) == 1, "a request")
        nonce, held = request.take(16), request.int(8)
        check(request.take(32) == rows[held - 1][1], "the link of the last row held")
        check(answer.int(1) == 2 and answer.take(16) == nonce and answer.int(8) == len(rows), "rows")
        said = [answer.bytes16(1025) for _ in range(answer.int(2))]
        check(said == [row for row, _ in rows[held:]], "the rows after those")
        check(diverged.int(1) == 3 and diverged.take(16) == nonce, "diverged")
        check(not any(request.rest + answer.rest + diverged.rest), "zeros")
        return f"{len(rows)} rows, a request, {len(said)} rows in answer"


class Group:
    """22: what somebody knows who hears a group and has the centre's secret."""

    NAMES = {1: "JOIN", 2: "CHALLENGE", 3: "ACCEPT", 4: "PROPOSE", 5: "ACK", 6: "COMMIT", 7: "BEACON", 8: "WISH", 9: "DISMISS",
             10: "WANT", 11: "GIVE", 12: "ROSTER", 13: "LACK"}

    def __init__(self, centre, given):
        self.centre, self.name, self.suite = centre, given["group"], given["suite"]
        self.veil = Veil(centre.bootstrap(self.name))
        self.tokens, self.proposals, self.epochs, self.salts = {}, {}, {}, {}

    def who(self, r): return r.take(32), r.take(16)

    def registered(self, r):
        it = Registration(r.bytes16(1024))
        check(self.centre.people[it.principal].data == it.data and it.good_at(self.centre.utc), "a registration that holds")
        return it

    def pair_key(self, leader, member):
        sigma = self.centre.sigma(leader[0], member[0], self.salts[leader[0], member[0]])
        return derive(sigma, leader[1] + member[1], b"sealcast/v1/center/pair", self.name.encode())

    def tagged(self, tag, leader, member, what, *parts):
        made = prf(self.pair_key(leader, member), f"sealcast/v1/center/{what}", *parts)[:16]
        check(tag == made, f"the tag of {what}")

    def message(self, step):
        _, plain = self.veil.open(bytes.fromhex(step["datagram"]))
        name, r = self.NAMES[plain[0]], Reader(plain[1:])
        said = getattr(self, "read_" + name.lower())(r, step)
        r.end()
        check(name == step["message"], f"{name} is no {step['message']}")
        return f"{name}{said or ''}"

    def read_join(self, r, _):
        self.registered(r), r.take(16)
        check(r.take(12) == NO_EPOCH and r.int(2) == 0 and r.int(1) <= 1, "somebody in no group")

    def read_beacon(self, r, _):
        check(self.registered(r).leads(self.name), "who may lead")
        r.take(16 + 12 + 2)
        check(r.int(1) <= 1, "channels")

    def read_challenge(self, r, step):
        member, registration = self.who(r), self.registered(r)
        leader, salt, token = (registration.principal, r.take(16)), r.take(16), r.take(16)
        check(registration.leads(self.name), "who may lead")
        check(self.centre.sigmas[leader[0], member[0]] == salt, "the salt of the centre's answer")
        self.salts[leader[0], member[0]], self.tokens[leader, member] = salt, token
        self.tagged(r.take(16), leader, member, "challenge", token)
        check(self.pair_key(leader, member).hex() == step["pair_key"], "another pair key")

    def read_accept(self, r, _):
        member, leader, token, epoch = self.who(r), self.who(r), r.take(16), r.take(12)
        check(self.tokens[leader, member] == token, "a token of this leader's")
        self.tagged(r.take(16), leader, member, "accept", token, epoch)

    def read_propose(self, r, step):
        lock, leader, base, counter, attempt = r.take(32), self.who(r), r.take(12), r.int(4), r.int(4)
        n, roster = r.int(2), r.take(32)
        gone = [(r.int(2), r.int(1)) for _ in range(r.int(2))]
        came = [(r.int(2), self.who(r)) for _ in range(r.int(2))] if r.int(1) else None
        signature, acked = r.take(64), r.bytes16(128)
        check(0 < n <= 1024 and counter >= 1 and all(1 <= why <= 4 for _, why in gone), "a proposal")
        head = leader[0] + leader[1] + base + u32(counter) + u32(attempt) + u16(n) + roster + u16(len(gone))
        change = transcript("sealcast/v1/center/change", head + b"".join(u16(slot) + u8(why) for slot, why in gone))
        proposal = transcript("sealcast/v1/center/propose", change, lock)
        check(proposal.hex() == step["proposal"], "another proposal")
        check(verified(self.centre.people[leader[0]].key, proposal, signature), "the signature of a proposal")
        if proposal in self.proposals:
            heard = [slot for slot in range(n) if acked[slot // 8:][:1] and acked[slot // 8] >> slot % 8 & 1]
            return f" again, to all but {heard}"
        p = self.proposals[proposal] = {"leader": leader, "base": base, "counter": counter, "cuts": {}, "change": change,
                                        "lock": lock, "gone": gone, "roster": roster, "size": n, "slots": None}
        if base in self.epochs and came is not None:
            check(counter == int.from_bytes(base[:4], "big") + 1, "the next epoch")
            out, slots = {slot for slot, _ in gone}, dict(came)
            stay = iter(who for slot, who in enumerate(self.epochs[base].slots) if slot not in out)
            self.follow(p, [slots[slot] if slot in slots else next(stay) for slot in range(n)])
            check(next(stay, None) is None, "all of the base stay or go")
        return f" of {n}, {len(gone)} go, " + ("whole" if came is None else f"{len(came)} came")

    def follow(self, p, slots):
        check(transcript("sealcast/v1/center/roster", b"".join(who + run for who, run in slots)) == p["roster"], "the roster")
        check(slots[0] == p["leader"], "the leader comes first")
        check(len({who for who, _ in slots}) == len(slots) == p["size"], "nobody comes twice")
        may = [self.centre.people[who].leads(self.name) for who, _ in slots]
        check(may[0] and may[1:] == sorted(may[1:], reverse=True), "who may lead comes before the others")
        check(p["slots"] in (None, slots), "one roster")
        p["slots"] = slots

    def read_roster(self, r, _):
        proposal, part = r.take(32), r.int(2)
        p, slots, said = self.proposals[proposal], [], b""
        check(part == 0 and p["size"] <= 16, "its only part")
        for _ in range(r.int(2)):
            member, salt = self.who(r), r.take(16)
            known = bytes(16) if member == p["leader"] else self.salts[p["leader"][0], member[0]]
            check(salt == known, "the salt of a slot")
            slots.append(member)
            said += member[0] + member[1] + salt
        statement = transcript("sealcast/v1/center/roster part", proposal, u16(part), said)
        check(verified(self.centre.people[p["leader"][0]].key, statement, r.take(64)), "the signature of a roster")
        self.follow(p, slots)
        return f" of {len(slots)}"

    def read_lack(self, r, _):
        member, leader, proposal, parts = self.who(r), self.who(r), r.take(32), r.take(8)
        check(self.proposals[proposal]["leader"] == leader, "a proposal of this leader's")
        self.tagged(r.take(16), leader, member, "lack", proposal, parts)

    def read_ack(self, r, _):
        member, leader, proposal, epoch, cut = self.who(r), self.who(r), r.take(32), r.take(12), r.take(32)
        p = self.proposals[proposal]
        check(p["leader"] == leader and member in p["slots"], "a member of the proposal")
        check(epoch != NO_EPOCH or cut == ZEROS, "who is in no view has no cut")
        if epoch == p["base"]:
            p["cuts"][member] = cut
        self.tagged(r.take(16), leader, member, "ack", proposal, epoch, cut)

    def read_commit(self, r, step):
        proposal, cut = r.take(32), r.take(32)
        nonce = r.take(32) if r.int(1) else None
        commitments = [r.take(32) for _ in range(r.int(2))]
        entries = [(r.int(2), r.bytes16(4096)) for _ in range(r.int(2))]
        p = self.proposals[proposal]
        check(set(p["cuts"].values()) <= {cut}, "all of the base say alike how it ended")
        check(p["lock"] == transcript("sealcast/v1/center/lock", nonce or b"", *commitments), "what the leader vouched for")
        epoch = Epoch(self, p, proposal, cut, commitments)
        check((nonce is not None) == step["one_way"], "a nonce")
        if nonce:
            epoch.derive(self.epochs[p["base"]], nonce)
            acked = [at for at, who in enumerate(p["slots"][1:], 1) if who not in p["cuts"] or epoch.sends(at)]
            check({slot for slot, _ in entries} <= set(acked), "who derives has no entry")
        check(epoch.transcript.hex() == step["transcript"] and epoch.id.hex() == step["epoch"], "another epoch")
        epoch = self.epochs.setdefault(epoch.id, epoch)
        for slot, sealed in entries:
            epoch.take(slot, sealed)
        for ring, secret in epoch.secrets.items():
            check(secret.hex() == step["secrets"][ring], "another secret")
        check(step["ring_of_domain"] == epoch.ring_of, "rings of domains")
        for slot, _ in entries:
            own = [[domain, epoch.own[domain, at].hex()] for domain, at in sorted(epoch.own) if at == slot]
            check(own == step["sending_keys"][slot], "sending keys")
        how = "one-way " if nonce else ""
        return f": {how}epoch {p['counter']}, {len(commitments)} rings, entries of slots {[slot for slot, _ in entries]}"

    def read_wish(self, r, step):
        sender, to, epoch, what = self.who(r), self.who(r), r.take(12), r.int(1)
        slots = self.epochs[epoch].slots
        check(1 <= what <= 3 and sender in slots and to in slots, "a wish of a member")
        leader, member = (sender, to) if sender == slots[0] else (to, sender)
        check(leader == slots[0] and (what == 1 or sender != leader), "a wish to the leader, or a leader's to leave")
        self.tagged(r.take(16), leader, member, "wish", epoch, u8(what))
        return f" {('leave', 'new key', 'news')[what - 1]}"

    def read_dismiss(self, r, _):
        leader, member, why = self.who(r), self.who(r), r.int(1)
        check(1 <= why <= 4, "why")
        self.tagged(r.take(16), leader, member, "dismiss", u8(why))

    def read_want(self, r, _):
        n = r.int(2)
        check(n <= 64 and all(r.take(32) in self.centre.people for _ in range(n)), "whom it wants")

    def read_give(self, r, _):
        n = r.int(2)
        check(n <= 64, "64 registrations")
        for _ in range(n):
            self.registered(r)


class Epoch:
    """22.2, and 4: the keys of an epoch, and what they open."""

    def __init__(self, group, p, proposal, cut, commitments):
        self.group, self.p, self.slots, self.proposal, self.commitments = group, p, p["slots"], proposal, commitments
        self.transcript = transcript("sealcast/v1/center/epoch", proposal, cut, *commitments)
        self.id = u32(p["counter"]) + self.transcript[:8]
        self.people = [group.centre.people[principal] for principal, _ in self.slots]
        self.secrets, self.own, self.seen = {}, {}, set()
        everybody = frozenset(range(len(self.slots)))
        self.domains, self.rings = [([], everybody, frozenset())], [everybody]
        name = group.name
        rights = [right for it in self.people for right in it.rights]
        texts = {text for of, act, text in rights if of == name and act in ("sub", "both")} - {"#"}
        for text in sorted(texts, key=lambda text: order(pattern(text)))[:15] + ["#"]:  # 8.2
            patterns = [pattern(text)]
            readers = frozenset(i for i, it in enumerate(self.people) if it.reads(name, patterns))
            writes = {i for i, it in enumerate(self.people) for w in it.grants(name, "pub", "both") if overlaps(w, patterns[0])}
            self.domains.append((patterns, readers, frozenset(writes) - readers))
            if readers and readers not in self.rings:  # 8.3
                self.rings.append(readers)
        self.ring_of = [self.rings.index(readers) if readers else None for _, readers, _ in self.domains]
        check(len(commitments) == len(self.rings), "one commitment for each ring")

    def sends(self, slot):
        return any(slot in writers and readers for _, readers, writers in self.domains)

    def derive(self, base, nonce):
        check(not self.p["gone"], "nobody goes in a one-way change")
        places = [self.slots.index(who) for who in base.slots]
        for ring, readers in enumerate(self.rings):
            were = frozenset(at for at, place in enumerate(places) if place in readers)
            if were and base.rings.index(were) in base.secrets:  # no entry showed those of the leader alone
                old = base.secrets[base.rings.index(were)]
                secret = derive(old, self.p["change"], b"sealcast/v1/center/next", nonce, u16(ring))
                commitment = derive(secret, self.p["change"], b"sealcast/v1/center/com", u16(ring))
                check(commitment == self.commitments[ring], "a commitment: the leader lies")
                self.secrets[ring] = secret

    def take(self, slot, sealed):
        pair = self.group.pair_key(self.slots[0], self.slots[slot])
        key = derive(pair, self.transcript, b"sealcast/v1/center/entry")
        r = Reader(AESGCM(key).decrypt(bytes(12), sealed, self.transcript))
        for ring, readers in enumerate(self.rings):
            if slot in readers:
                secret = r.take(32)
                commitment = derive(secret, self.p["change"], b"sealcast/v1/center/com", u16(ring))
                check(commitment == self.commitments[ring], "a commitment: the leader lies")
                check(self.secrets.setdefault(ring, secret) == secret, "all of a ring have one secret")
        for domain, (_, readers, writers) in enumerate(self.domains):
            if slot in writers and readers:
                self.own[domain, slot] = r.take(32)
                if self.ring_of[domain] in self.secrets:
                    check(self.own[domain, slot] == self.derived(domain, slot), "the key that readers derive")
        r.end()

    def derived(self, domain, slot):
        secret = derive(self.secrets[self.ring_of[domain]], self.id, b"sealcast/v1/center/domain", u16(domain))
        parts = u16(domain), u32(slot), self.slots[slot][1], u8(self.group.suite)
        return derive(secret, self.id, b"sealcast/v1/sub", self.group.name.encode(), *parts)

    def open(self, datagram):  # 1.2
        header = Reader(datagram[:28])
        check(header.take(2) == b"\x5c\x01", "a sealed datagram")
        domain, _, slot = header.int(2), header.take(12), header.int(2) | header.int(1) << 16
        flags, counter = header.int(1), header.int(8)
        check(flags <= 1 and (domain, slot, counter) not in self.seen, "an unknown flag, or a replay")
        self.seen.add((domain, slot, counter))
        key = self.own.get((domain, slot)) or self.derived(domain, slot)
        record = data = AESGCM(key).decrypt(bytes(4) + u64(counter), datagram[28:], datagram[:28])
        if flags:
            data, root, signature = proof(record)
            statement = transcript("sealcast/v1/origin", self.id, u16(domain), u32(slot), root)
            signed = transcript("sealcast/v1/vouch", self.group.name.encode(), self.id, u32(slot), statement)
            check(verified(self.people[slot].key, signed, signature), "an origin proof")
        said = []
        for f in frames(data):
            if f["kind"] == "whole":
                first = next(i for i, (patterns, _, _) in enumerate(self.domains) if any(matches(t, f["topic"]) for t in patterns))
                check(first == domain and self.people[slot].may_publish(self.group.name, f["topic"]), "a right to this topic")
            said.append(f"{f['topic']} {f['body']!r}" if f["kind"] == "whole" else f["kind"])
        return record, ("signed: " if flags else "claimed: ") + ", ".join(said)


def read_center(path):
    file = json.loads(path.read_text())
    given, known = file["given"], file["centre"]
    centre = Centre(bytes.fromhex(given["secret"]), given["utc"])
    print(f"{path.name}: a centre and a group around a leader")
    found = centre.master, centre.master_a, centre.realm, centre.bootstrap(given["group"])
    check([it.hex() for it in found] == [known[name] for name in ("MK", "MK'", "realm", "bootstrap")], "what the centre makes")
    names = {}
    for it in file["principals"]:
        registration = Registration(bytes.fromhex(it["registration"]))
        principal = registration.principal
        check((registration.name, principal.hex(), registration.realm) == (it["name"], it["principal"], centre.realm), it["name"])
        check((centre.exchange(principal).hex(), centre.authentication(principal).hex()) == (it["X"], it["A"]), "long-term keys")
        seed = bytes.fromhex(given["signing"][it["name"]])
        public = ed25519.Ed25519PrivateKey.from_private_bytes(seed).public_key().public_bytes_raw()
        check(public == registration.raw, "the signing key")
        centre.people[principal] = registration
        names[it["name"]] = principal, bytes.fromhex(given["runs"][it["name"]])
    for it in file["malformed"]:
        try:
            Registration(bytes.fromhex(it["registration"]))
        except Refused as why:
            check(str(why) == it["why"], f"malformed for another reason: {why}")
        else:
            raise Refused(f"a registration should be malformed: {it['why']}")
    group = Group(centre, given)
    for step in file["steps"]:
        datagram = bytes.fromhex(step["datagram"])
        if "ask" in step:
            check(centre.asked(datagram) == (step["ask"], step["from"]), f"{step['ask']} of {step['from']}")
            print(f"  {step['from']}: {step['ask']}")
        elif "answer" in step:
            name, said, sigma = centre.answered(datagram)
            check(name == step["answer"] and (sigma is None or sigma.hex() == step["sigma"]), f"another {step['answer']}")
            print(f"  = {said}")
        elif "message" in step:
            print(f"  {step['from']}: {group.message(step)}")
        else:
            epoch = group.epochs[datagram[4:16]]
            record, said = epoch.open(datagram)
            slot = datagram[16] << 8 | datagram[17]
            check(record.hex() == step["record"] and epoch.slots[slot] == names[step["from"]], "another plaintext")
            print(f"  {step['from']}: {said}")
    print(f"  log: {centre.log(file['log'])}")


def main():
    home = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parents[2]
    try:
        read_center(home / "keys/vectors/center.json")
    except InvalidTag as why:
        raise Refused("a seal that does not open") from why
    print("all of it is as docs/WIRE.md says")


if __name__ == "__main__":
    main()
