"""The original LCM in Python, driven by lines: lcm_talk.py URL

subscribe REGEX         receives what matches
publish CHANNEL LENGTH  sends the pattern of that length
                        and prints `got CHANNEL LENGTH CHECKSUM` for every message received.
The pattern of a length and the checksum (FNV-1a, 64 bits) are those of the lab's role `talk`.
"""

import os
import select
import sys

import lcm


def pattern(length):
    block = bytes((i * 31 + (i >> 8) + length) & 0xFF for i in range(min(length, 65536)))
    return (block * (length // 65536 + 1))[:length]


def checksum(data):
    # Every byte of a short message; of a long one every 61st, and the last.
    h = 0xCBF29CE484222325
    for b in data if len(data) <= 65536 else data[::61] + data[-1:]:
        h = ((h ^ b) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return f"{h:016x}"


def main():
    lc = lcm.LCM(sys.argv[1])
    lines = os.fdopen(0, "rb", 0)

    def got(channel, data):
        print("got", channel, len(data), checksum(data), flush=True)

    print("ready", flush=True)
    while True:
        ready, _, _ = select.select([lines, lc], [], [])
        if lc in ready:
            lc.handle()
        if lines in ready:
            words = lines.readline().decode().split()
            if not words:
                return
            if words[0] == "subscribe":
                lc.subscribe(words[1], got).set_queue_capacity(0)
                print("ready", flush=True)
            elif words[0] == "publish":
                lc.publish(words[1], pattern(int(words[2])))


main()
