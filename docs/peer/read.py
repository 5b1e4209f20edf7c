#!/usr/bin/env python3
"""Reads Sealcast's wire by docs/WIRE.md alone: opens, parses and verifies the golden vectors.

    python3 docs/peer/read.py [the repository's folder]

Given a group's veil, its authority and, per agreement, what each member drew at random, it computes all else: cards,
rosters, compartments, rings, epochs, keys. It shares no code with the library, is not constant-time, and only reads.
Numbers in comments are sections of WIRE.md.
"""
import hashlib
import json
import pathlib
import sys

from ring import Ring, wide
from wire import (
    AESGCM, MANY, Certificate, ChaCha20Poly1305, Reader, Refused, Veil, check, control, covers, derive, ed25519, frames, hpke_open,
    hpke_pair, matches, order, overlaps, pattern, proof, sha256, transcript, u8, u16, u32, u64, verified, x509)


class Group:
    """What somebody knows who hears a group's datagrams and has its veil."""

    def __init__(self, given):
        self.group, self.name, self.suite = given["group"], given["group"].encode(), given["suite"]
        self.veil = Veil(bytes.fromhex(given["veil"]))
        self.authority = x509.load_der_x509_certificate(bytes.fromhex(given["authority"]))
        self.authority_hash = sha256(bytes.fromhex(given["authority"]))
        self.cards, self.proposals, self.epochs = {}, {}, {}
        self.evictions, self.crl, self.policy = {}, 0, (0, [])

    # 6. Statements.
    def statement(self, data):
        r = Reader(data)
        check(r.take(2) == b"SC", "a statement")
        kind, version, by_member = r.take(1), r.int(1), r.int(1)
        check(version == 1 and by_member <= 1, "a statement of this version")
        check(len(data) <= 12288, "a statement's length")
        body, key, by = r.bytes16(12288), self.authority.public_key(), b""
        if by_member:
            signer, evicted = (Certificate(r.bytes16(4096), self.authority) for _ in range(2))
            key, by = signer.key, signer.hash
        identity = transcript("sealcast/v1/statement", kind, self.authority_hash, by, body)
        check(verified(key, identity, r.take(64)), "a statement's signature")
        r.end()
        r = Reader(body)
        check(r.bytes16(64) == self.name, "a statement about this group")
        if kind == b"E":
            serial, cert, number, voids = r.bytes16(20), r.take(32), r.int(8), r.int(1)
            check(serial[:1] > b"\0" and voids <= 1, "one encoding of a serial")
            if by_member:
                check(not voids and (evicted.serial, evicted.hash) == (serial, cert), "a member's statement")
                may = signer.grants(self.group, "evict")
                theirs = [pattern(text) for of, _, text in evicted.rights if of == self.group] or [[MANY]]
                check(all(any(covers(e, t) for e in may) for t in theirs), "no right to evict")
            r.bytes16(200).decode()
            self.evictions[cert, by] = identity
        else:
            check(kind == b"P" and not by_member, "the authority's policy")
            number, _, _ = r.int(8), r.int(4), r.int(1)
            lines = [(r.bytes16(64), [r.bytes16(255).decode() for _ in range(r.int(2))]) for _ in range(r.int(2))]
            check(len({name for name, _ in lines}) == len(lines) <= 16, "names of compartments")
            self.policy = number, lines
        r.end()
        return identity

    def evictions_hash(self):
        return transcript("sealcast/v1/evictions", self.name, *(self.evictions[key] for key in sorted(self.evictions)))

    def state(self):  # 8.1
        return transcript("sealcast/v1/statements", self.evictions_hash(), u64(self.crl), u64(self.policy[0]))

    def summary(self, r):
        same = r.take(8) == self.evictions_hash()[:8], r.int(8) == self.crl, r.int(8) == self.policy[0]
        check(all(same), "the same statements")

    # 7. Messages.
    def message(self, datagram):
        nonce, plain = self.veil.open(datagram)
        names = {1: "JOIN", 2: "PROPOSE", 3: "PROPOSE", 4: "PROPOSE", 5: "R1", 6: "R2", 7: "KC", 8: "STATUS", 9: "FETCH",
                 10: "GIVE", 11: "BEACON", 12: "LEAVE", 13: "SENDERKEY", 14: "STATE"}
        # The upper half is the format, of a proposal the version that it is for.
        name = names[plain[0] & 15]
        check(plain[0] >> 4 == 1, "a message of version 1")
        body, signature = (plain, None) if name in ("FETCH", "GIVE", "STATE") else (plain[:-64], plain[-64:])
        r = Reader(body[1:])
        key, signed = getattr(self, "read_" + name.lower())(r, body, nonce)
        check(signature is None or verified(key, signed, signature), f"the signature of {name}")
        r.end()
        if name == "R1":
            self.believe(self.proposals[body[9:17]])
        if name == "KC":
            self.compare(self.proposals[body[9:17]])
        return name

    # 8.8, as somebody who is in no group.
    def believe(self, p):
        if p["base"] and set(p["active"]) == set(p["digests"]["r1"]):
            check(len(p["of_base"]) >= 2, f"{len(p['of_base'])} vouches for the base, and two must")

    # 8.5, once the key is computed.
    def compare(self, p):
        hashes = {kc["epoch"] for kc in p["confirmed"].values()}
        check(p.get("epoch") is None or hashes == {p["epoch"]}, "a KC of another epoch hash: another suite, for example")

    def card(self, r):  # 7.1
        cert, incarnation, key, versions, signature = r.take(32), r.take(16), r.take(32), r.take(2), r.take(64)
        check(int.from_bytes(versions, "big") & 3 == 2, "somebody who speaks version 1, and none numbered 0")
        certificate = Certificate(r.bytes16(4096), self.authority)
        check(certificate.hash == cert, "the certificate's hash")
        signed = transcript("sealcast/v1/card", self.name, cert, incarnation, key, versions)
        check(verified(certificate.key, signed, signature), "a card's signature")
        short = transcript("sealcast/v1/member", self.name, cert, incarnation, key, versions)[:8]
        self.cards[short] = {
            "short": short, "cert": cert, "incarnation": incarnation, "raw": key, "versions": versions, "certificate": certificate,
            "key": ed25519.Ed25519PublicKey.from_public_bytes(key)}
        return self.cards[short]

    def read_join(self, r, body, _):  # 7.2
        card = self.card(r)
        self.summary(r)
        r.take(12 + 2 + 12)
        r.bytes16(1024)  # what later versions add
        return card["key"], transcript("sealcast/v1/join", self.name, body)

    def read_propose(self, r, body, nonce):  # 7.3
        p = {"type": body[0] & 15, "version": body[0] >> 4, "counter": r.int(4), "attempt": r.int(1), "hint": r.take(4)}
        base_counter = r.int(4) if p["type"] > 2 else 0
        p["base"] = r.take(9)[1:] if p["type"] > 2 else None
        p["joiners"] = r.int(8) if p["type"] == 4 else 0
        p["seats"] = [r.take(8) for _ in range(len(r.rest) // 8)]
        others = p["seats"][1:]
        check(others == sorted(set(others) - {p["seats"][0]}), "seats ascend")
        check(p["hint"] == self.state()[:4], "the proposer knows other statements")
        follows = base_counter % (2**32 - 1) + 1 if p["base"] else p["counter"]
        check(p["counter"] == follows and (p["base"] or p["counter"] <= 65536), "the number of the epoch to be")
        p["instance"] = transcript("sealcast/v1/proposal", self.name, nonce, body)
        self.proposals[p["instance"][:8]] = p
        self.form(p)
        return self.cards[p["seats"][0]]["key"], p["instance"]

    def form(self, p):  # 8.1 to 8.3
        p["slots"] = slots = sorted((self.cards[s] for s in p["seats"]), key=lambda c: (c["cert"], c["incarnation"]))
        roster = [c[part] for c in slots for part in ("cert", "incarnation", "raw", "versions")]
        p["roster"], p["state"] = transcript("sealcast/v1/roster", self.name, *roster), self.state()
        everybody = frozenset(range(len(slots)))
        p["domains"], p["readers"], parts = [([], everybody)], [everybody], []
        for name, texts in self.policy[1] or self.derived(slots):
            patterns = [pattern(text) for text in texts]
            readers = frozenset(i for i, c in enumerate(slots) if c["certificate"].reads(self.group, patterns))
            p["domains"].append((patterns, readers))
            parts += [name, u64(len(texts)), *(text.encode() for text in texts), u64(sum(1 << i for i in readers))]
            if readers and readers not in p["readers"]:
                p["readers"].append(readers)
        p["compartments"] = transcript("sealcast/v1/compartments", *parts)
        p["joins"] = joins = [i for i, c in enumerate(slots) if p["joiners"] >> p["seats"].index(c["short"]) & 1]
        places = [sorted(readers) for readers in p["readers"]]
        if p["type"] == 4:
            old = [i for i in range(len(slots)) if i not in joins]
            check(len(places) == 1 and len(old) >= 3 and joins, "a Join where it can be")
            places = [[old[0], old[1], old[-1], *joins]]
        p["rings"] = [Ring(i, slots_of, self.name, p) for i, slots_of in enumerate(places)]
        p["active"] = sorted({slot for ring in p["rings"] for slot in ring.places})
        p["digests"], p["confirmed"], p["of_base"] = {"r1": {}, "r2": {}, "kc": {}}, {}, set()

    def derived(self, slots):  # 8.2
        rights = [right for c in slots for right in c["certificate"].rights]
        texts = {text for of, act, text in rights if of == self.group and act in ("sub", "both")} - {"#"}
        texts = sorted(texts, key=lambda text: order(pattern(text)))[:15] + ["#"]
        return [(text.encode(), [text]) for text in texts]

    def round(self, label, r, body):
        author, instance = r.take(8), r.take(32 if label == "r1" else 8)
        p, card = self.proposals[instance[:8]], self.cards[author]
        slot = p["slots"].index(card)
        bound = [p["instance"]] if label == "status" else [p["instance"], p["roster"], p["state"]]
        if label == "r1":
            check([instance, r.take(32), r.take(32)] == bound, "an R1 of this attempt")
            of_base = r.int(1)
            check(of_base <= (p["type"] > 2 and slot not in p["joins"]), "who is of the base")
            p["of_base"] |= {slot} if of_base else set()
            bound = [card["cert"]]
        signed = transcript("sealcast/v1/" + label, self.name, *bound, body)
        if label in p["digests"]:
            p["digests"][label][slot] = signed
        return p, slot, [ring for ring in p["rings"] if slot in ring.places], card, signed

    def read_r1(self, r, body, _):  # 7.4
        p, slot, rings, card, signed = self.round("r1", r, body)
        check(r.int(1) == len(rings), "one contribution per ring")
        for ring in rings:
            ring.contribution(slot, r.take(96))
        return card["certificate"].key, signed

    def read_r2(self, r, body, _):  # 7.5
        p, slot, rings, card, signed = self.round("r2", r, body)
        heard = transcript("sealcast/v1/heard", p["roster"], *(p["digests"]["r1"][i] for i in p["active"]))
        check(r.take(32) == heard, "the author heard other R1")
        check(r.take(32) == bytes(32), "nothing is flushed")
        check(r.int(1) == len(rings), "one share per ring")
        for ring in rings:
            ring.share(slot, r.take(r.int(1)))
        return card["key"], signed

    def read_kc(self, r, body, _):  # 7.6
        p, slot, _, card, signed = self.round("kc", r, body)
        epoch, rings = r.take(8), [(r.take(32), r.take(32)) for _ in range(r.int(1))]
        p["confirmed"][slot] = {"epoch": epoch, "rings": rings, "publics": [r.take(32) for _ in range(r.int(1))]}
        return card["key"], signed

    def read_status(self, r, body, _):  # 7.7
        p, _, _, card, signed = self.round("status", r, body)
        check(all(r.int(8) >> len(p["seats"]) == 0 for _ in range(3)), "bits of seats")
        return card["key"], signed

    def read_fetch(self, r, *_):  # 7.8
        asked = self.proposals[r.take(8)] if r.int(1) else None
        check(asked is None or asked, "a proposal that was heard of")
        r.take(8 * r.int(2))
        return None, None

    def read_give(self, r, *_):
        while r.rest:
            kind = r.int(1)
            if kind == 1:
                self.card(r)
            elif kind == 3:
                crl = x509.load_der_x509_crl(r.bytes16(16384))
                check(crl.is_signature_valid(self.authority.public_key()), "a CRL's signature")
                self.crl = crl.extensions.get_extension_for_class(x509.CRLNumber).value.crl_number
            else:
                check(kind in (2, 4), "an unknown object")
                self.statement(r.bytes16(16384))
        return None, None

    def read_state(self, r, *_):
        check((r.int(8), r.int(8)) == (self.crl, self.policy[0]), "numbers of CRL and policy")
        known = sorted(identity[:8] for identity in self.evictions.values())
        check([r.take(8) for _ in range(r.int(2))] == known, "the same evictions")
        return None, None

    def read_beacon(self, r, body, _):  # 7.9
        card, epoch = self.cards[r.take(8)], self.epochs[r.take(12)]
        check(r.int(2) == len(epoch.p["slots"]), "the size of the group")
        self.summary(r)
        check(r.take(2) == card["versions"], "the versions on the card")
        r.bytes16(1024)
        return card["key"], transcript("sealcast/v1/beacon", self.name, body)

    def read_leave(self, r, body, _):
        card, _ = self.cards[r.take(8)], self.epochs[r.take(12)]
        return card["certificate"].key, transcript("sealcast/v1/leave", self.name, body)

    def read_senderkey(self, r, body, _):
        card, epoch = self.cards[r.take(8)], self.epochs[r.take(12)]
        epoch.sender_key(card, r.int(2), r.bytes16(256))
        return card["key"], transcript("sealcast/v1/sender-key", self.name, body)

    # 8.4, 8.7: the key, computed as each member from what it drew.
    def agree(self, datagram, agreed):
        nonce, plain = self.veil.open(datagram)
        p = self.proposals[transcript("sealcast/v1/proposal", self.name, nonce, plain[:-64])[:8]]
        slot_of = {name: p["slots"].index(self.cards[short]) for name, short in zip(agreed["seats"], p["seats"])}
        for name, slot in slot_of.items():
            mine = [ring for ring, readers in zip(p["rings"], p["readers"]) if slot in readers]
            drawn = agreed["uniform"][name] + [None] * len(mine)
            for ring, uniform in zip(mine, drawn):
                seat = ring.places.index(slot) if uniform else 1  # the seed's seat, or following it
                ring.close(seat, wide(bytes.fromhex(uniform)) if uniform else self.seed(p, ring))
        epoch = Epoch(self, p)
        for slot, kc in p["confirmed"].items():
            rings = [ring for ring in p["rings"] if slot in ring.places]
            check(kc["epoch"] == epoch.id[4:], "another epoch confirmed")
            check(kc["rings"] == [(ring.confirmation(slot), ring.commitment) for ring in rings], "another key confirmed")
        check(epoch.id.hex() == agreed["epoch"], "another epoch")
        check(p["rings"][0].commitment.hex() == agreed["commitment"], "another key")
        self.epochs[epoch.id], p["epoch"] = epoch, epoch.id[4:]
        return f"epoch {p['counter']} of {len(p['slots'])}, rings of {', '.join(str(ring.n) for ring in p['rings'])}"

    def seed(self, p, ring):  # 9.2
        [old] = [epoch.p["rings"][0] for epoch in self.epochs.values() if epoch.id[4:] == p["base"]]
        joiners = [p["slots"][i] for i in p["joins"]]
        joiners = [transcript("sealcast/v1/joiner", c["cert"], c["incarnation"]) for c in joiners]
        return wide(derive(old.sk, b"", b"DB/join", old.transcript, ring.session, *joiners, n=64))


class Epoch:
    """4: the keys of an epoch, and what they open."""

    def __init__(self, group, p):
        self.group, self.p, self.own, self.seen, self.pieces = group, p, {}, set(), {}
        digests = [p["digests"][label][slot] for label in ("r1", "r2") for slot in p["active"]]
        self.transcript = transcript(
            "sealcast/v1/epoch", group.name, u8(group.suite) + u8(p["version"]), p["instance"], p["roster"], p["state"],
            p["compartments"], bytes(32), *digests, p["rings"][0].commitment)
        self.id = u32(p["counter"]) + self.transcript[:8]

    def secret(self, domain):
        ring = self.p["rings"][self.p["readers"].index(self.p["domains"][domain][1])]
        return derive(ring.secret, self.transcript, b"sealcast/v1/domain", self.group.name, u16(domain))

    def key(self, domain, slot):
        if slot not in self.p["domains"][domain][1]:
            return self.own[domain, slot]
        parts = u16(domain), u32(slot), self.p["slots"][slot]["incarnation"], u8(self.group.suite)
        return derive(self.secret(domain), self.id, b"sealcast/v1/sub", self.group.name, *parts)

    def sender_key(self, card, domain, sealed):  # 7.9
        slot, (patterns, readers) = self.p["slots"].index(card), self.p["domains"][domain]
        writes = card["certificate"].grants(self.group.group, "pub", "both")
        check(slot not in readers and any(overlaps(w, t) for w in writes for t in patterns), "writes without reading")
        info = transcript("sealcast/v1/sender-key-info", self.group.name, self.id, u16(domain))
        pair = derive(self.secret(domain), b"", b"sealcast/v1/writers")
        _, public = hpke_pair(pair)
        self.own[domain, slot] = hpke_open(pair, info, card["short"], sealed)
        published = [kc["publics"] for reader, kc in self.p["confirmed"].items() if reader in readers]
        check(published and all(public in keys for keys in published), "the readers published this key")

    def vouched(self, slot, statement, signature):  # 4.1
        signed = transcript("sealcast/v1/vouch", self.group.name, self.id, u32(slot), statement)
        return verified(self.p["slots"][slot]["key"], signed, signature)

    def open(self, datagram, heard):  # 1.2
        header = Reader(datagram[:28])
        check(header.take(2) == b"\x5c\x01", "a sealed datagram")
        domain, _, slot = header.int(2), header.take(12), header.int(2) | header.int(1) << 16
        flags, counter = header.int(1), header.int(8)
        check(flags <= 1, "unknown flags, or a reliable record, which these vectors have not")
        aead = (AESGCM if self.group.suite == 1 else ChaCha20Poly1305)(self.key(domain, slot))
        record = aead.decrypt(bytes(4) + u64(counter), datagram[28:], datagram[:28])
        check((domain, slot, counter) not in self.seen, "a replay")
        self.seen.add((domain, slot, counter))
        data, said = record, []
        if flags:
            data, root, signature = proof(record)
            statement = transcript("sealcast/v1/origin", self.id, u16(domain), u32(slot), root)
            check(self.vouched(slot, statement, signature), "an origin proof")
        for f in frames(data):
            body = f.get("body") if f["kind"] != "piece" else self.together(slot, domain, flags, f)
            if f["kind"] == "heartbeat":
                said.append("heartbeat")
            elif body is None:
                said.append(f"a piece of #{f['number']}")
            elif f["keys"]:
                check(domain == 0 and body[0] == 1, "a VOUCH on the control lane")
                said.append(self.vouch(slot, body, heard))
            else:
                self.judge(domain, slot, flags, f["topic"])
                said.append(f"{f['topic']} #{f['number']} {body!r}")
        return record, ("signed: " if flags else "claimed: ") + ", ".join(said)

    def together(self, slot, domain, flags, f):
        parts = self.pieces.setdefault((slot, domain, flags, f["number"], f["total"]), {})
        parts[f["offset"]] = f["body"]
        body = b"".join(parts[at] for at in sorted(parts))
        return body if len(body) == f["total"] else None

    def judge(self, domain, slot, flags, topic):  # 8.2
        first = next(i for i, (patterns, _) in enumerate(self.p["domains"]) if any(matches(t, topic) for t in patterns))
        may = [c["certificate"].may_publish(self.group.group, topic) for c in self.p["slots"]]
        must_sign = not all(may[i] for i in self.p["domains"][first][1])
        check(first == domain and may[slot] and (flags or not must_sign), "no right to this topic, or unsigned")

    def vouch(self, slot, body, heard):  # 3
        r, said = Reader(body[1:-64]), body[:-64]
        old, part, parts, n = self.group.epochs[r.take(12)], r.int(1), r.int(1), r.int(2)
        named = {r.take(26) for _ in range(n)}
        r.end()
        statement = transcript("sealcast/v1/vouch", self.id, u32(slot), said)
        check(part < parts and self.vouched(slot, statement, body[-64:]), "a VOUCH")
        sealed = [d for d in heard if d[:2] == b"\x5c\x01" and d[4:16] == old.id]
        check(named <= {d[2:4] + d[20:28] + sha256(d)[:16] for d in sealed}, "it names what was sent")
        return f"VOUCH for {n} of epoch {old.p['counter']}"


def read_group(path):
    file = json.loads(path.read_text())
    for story in file["stories"]:
        print(f"{path.name}: {story['name']}")
        group, heard = Group(file["given"]), []
        for step in story["steps"]:
            datagram = bytes.fromhex(step["datagram"])
            check(datagram[0] == 0x5C != ord("L"), "our first byte")
            if "agreed" in step:
                print("  =", group.agree(datagram, step["agreed"]))
            elif "refused" in step:
                try:
                    group.message(datagram)
                except Refused as why:
                    check(str(why) == step["refused"], f"refused for another reason: {why}")
                    print(f"  {step['from']}: {step['message']} refused: {why}")
                else:
                    raise Refused(f"{step['message']} of {step['from']} should be refused: {step['refused']}")
            elif "message" in step:
                said = group.message(datagram)
                check(said == step["message"], f"{said} is no {step['message']}")
                print(f"  {step['from']}: {said}")
            else:
                record, said = group.epochs[datagram[4:16]].open(datagram, heard)
                check(record.hex() == step["record"], "another plaintext")
                print(f"  {step['from']}: {said}")
            heard.append(datagram)


def read_records(path):
    file = json.loads(path.read_text())
    for v in file["frames"]:
        [f] = frames(bytes.fromhex(v["bytes"]))
        expect = {**v, "body": bytes.fromhex(v.get("body", ""))}
        check(all(expect[key] == value for key, value in f.items()), v["what"])
    for v in file["controls"]:
        said = control(bytes.fromhex(v["bytes"]))
        check(said == (v["what"], v["streams"], v.get("ranges", [])), v["what"])
    signed = file["signed"]
    key = ed25519.Ed25519PrivateKey.from_private_bytes(bytes.fromhex(signed["seed"])).public_key()
    epoch = u32(signed["epoch_counter"]) + u64(signed["epoch_hash"])
    for batch in signed["batches"]:
        for v in batch["records"]:
            data, root, signature = proof(bytes.fromhex(v["record"]))
            statement = transcript("sealcast/v1/origin", epoch, u16(signed["domain"]), u32(signed["slot"]), root)
            check(data.hex() == v["frames"] and verified(key, statement, signature), f"a record of {batch['count']}")
    print(f"{path.name}: {len(file['frames'])} frames, {len(file['controls'])} control messages, {len(signed['batches'])} signed batches")


def read_primitives(path):
    for v in json.loads(path.read_text())["vectors"]:
        if v["kind"] == "transcript":
            parts = [bytes.fromhex(part) for part in v["parts"]]
            check(transcript(v["label"], *parts).hex() == v["hash32"], v["name"])
            check(transcript(v["label"], *parts, hash_function=hashlib.sha512).hex() == v["hash64"], v["name"])
        elif v["kind"] == "hkdf":
            parts = [bytes.fromhex(part) for part in v["info"]]
            check(derive(bytes.fromhex(v["ikm"]), bytes.fromhex(v["salt"]), *parts).hex() == v["key"], v["name"])
    print(f"{path.name}: transcripts and derived keys")


def main():
    home = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parents[2]
    read_primitives(home / "crypto/vectors/primitives.json")
    read_records(home / "delivery/vectors/records.json")
    read_group(home / "keys/vectors/contributory.json")
    print("all of it is as docs/WIRE.md says")


if __name__ == "__main__":
    main()
