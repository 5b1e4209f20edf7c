"""Makes records.json: the layouts of delivery/src/multicast/{frame,origin}.rs, written a second time.

Needs `pip install cryptography`.
"""
import hashlib, json, pathlib, struct
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
sha=lambda b: hashlib.sha256(b).digest()
def whole(number, topic, body, keys=False, sent=None, again=False):
    t=topic.encode(); return bytes([1|(0x20 if again else 0)|(0x40 if keys else 0)|(0x80 if sent is not None else 0), len(t)])+struct.pack(">IQ",len(body),number)+(struct.pack(">Q",sent) if sent is not None else b"")+t+body
def piece(number, topic, total, offset, body, keys=False, sent=None):
    t=topic.encode(); return bytes([2|(0x40 if keys else 0)|(0x80 if sent is not None else 0), len(t)])+struct.pack(">IQII",len(body),number,total,offset)+(struct.pack(">Q",sent) if sent is not None else b"")+t+body
def heartbeat(n): return bytes([3])+struct.pack(">Q",n)
def stream(domain, signed): return struct.pack(">HB",domain,signed)
def control(body): return bytes([4])+struct.pack(">H",len(body))+body
def after(domain, signed, n): return bytes([5])+stream(domain,signed)+struct.pack(">Q",n)
def tail(*streams): return bytes([1,len(streams)])+b"".join(stream(d,s)+struct.pack(">Q",n) for d,s,n in streams)
def numbers(kind, *streams): return bytes([kind,len(streams)])+b"".join(struct.pack(">I",slot)+stream(d,s)+struct.pack(">Q",n) for slot,d,s,n in streams)
def nak(slot, d, s, *ranges): return bytes([4])+struct.pack(">I",slot)+stream(d,s)+bytes([len(ranges)])+b"".join(struct.pack(">QQ",a,b) for a,b in ranges)
def gone(d, s, n): return bytes([5])+stream(d,s)+struct.pack(">Q",n)
def transcript(label,*parts):
    out=b"sealcast transcript\0"
    for p in (label.encode(),)+parts: out+=struct.pack(">Q",len(p))+p
    return sha(out)
def leaf(r): return sha(b"\0"+r)
def node(l,r): return sha(b"\1"+l+r)
def tree(hashes):
    level=[leaf(h) for h in hashes]; paths=[[] for _ in hashes]; idx=list(range(len(hashes)))
    while len(level)>1:
        for k in range(len(hashes)):
            s=idx[k]^1
            if s<len(level): paths[k].append(level[s])
            idx[k]//=2
        level=[node(level[i],level[i+1]) if i+1<len(level) else level[i] for i in range(0,len(level),2)]
    return sha(b"\2"+struct.pack(">Q",len(hashes))+level[0]),paths
frames=[
 {"what":"whole message","kind":"whole","keys":False,"number":1,"sent_micros":None,"topic":"pose/robot7","body":"hello".encode().hex()},
 {"what":"empty message on the empty topic","kind":"whole","keys":False,"number":2,"sent_micros":None,"topic":"","body":""},
 {"what":"with the sender's clock","kind":"whole","keys":False,"number":3,"sent_micros":1767225600000000,"topic":"température","body":"01ff"},
 {"what":"a key scheme's","kind":"whole","keys":True,"number":18446744073709551615,"sent_micros":None,"topic":"","body":"00"},
 {"what":"sealed again","kind":"whole","keys":False,"again":True,"number":4,"sent_micros":None,"topic":"log","body":"00"},
 {"what":"piece","kind":"piece","keys":False,"number":4,"sent_micros":None,"topic":"image","total":100000,"offset":1400,"body":"aabbcc"},
 {"what":"last piece with the sender's clock","kind":"piece","keys":False,"number":5,"sent_micros":7,"topic":"image","total":10,"offset":9,"body":"dd"},
 {"what":"piece of a key scheme's","kind":"piece","keys":True,"number":6,"sent_micros":None,"topic":"","total":3000,"offset":0,"body":"ee"},
 {"what":"heartbeat","kind":"heartbeat","number":6},
 {"what":"what members say of reliable records","kind":"control","number":0,"body":gone(3,1,12).hex()},
 {"what":"what comes after a record of another stream","kind":"after","number":12,"domain":3,"is_signed":True},
]
for f in frames:
    if f["kind"]=="heartbeat": b=heartbeat(f["number"])
    elif f["kind"]=="control": b=control(bytes.fromhex(f["body"]))
    elif f["kind"]=="after": b=after(f["domain"],f["is_signed"],f["number"])
    elif f["kind"]=="whole": b=whole(f["number"],f["topic"],bytes.fromhex(f["body"]),f["keys"],f["sent_micros"],f.get("again",False))
    else: b=piece(f["number"],f["topic"],f["total"],f["offset"],bytes.fromhex(f["body"]),f["keys"],f["sent_micros"])
    f["bytes"]=b.hex()
seed=bytes([0,0]+[7]*30); key=Ed25519PrivateKey.from_private_bytes(seed)
epoch=struct.pack(">IQ",1,0xE1); domain=1; slot=0
batches=[]
for count in (1,2,3,5,64):
    recs=[whole(n+1,"pose/robot7",bytes([n])*3) for n in range(count)]
    root,paths=tree([sha(r) for r in recs])
    sig=key.sign(transcript("sealcast/v1/origin",epoch,struct.pack(">H",domain),struct.pack(">I",slot),root))
    depth=(count-1).bit_length()
    outs=[]
    for i,(r,p) in enumerate(zip(recs,paths)):
        outs.append(r+b"".join(p)+bytes(32*(depth-len(p)))+sig+bytes([i,count])+struct.pack(">H",len(sig)))
    keep=range(count) if count<=5 else (0,37,63)
    batches.append({"count":count,"records":[{"index":i,"frames":recs[i].hex(),"record":outs[i].hex()} for i in keep]})
controls=[
 {"what":"TAIL","streams":[[1,0,7],[3,1,2**62-1]],"bytes":tail((1,0,7),(3,1,2**62-1)).hex()},
 {"what":"STATUS","streams":[[70000,1,0,7]],"bytes":numbers(2,(70000,1,0,7)).hex()},
 {"what":"SUMMARY","streams":[[0,1,0,7],[1,2,1,9]],"bytes":numbers(3,(0,1,0,7),(1,2,1,9)).hex()},
 {"what":"NAK","streams":[[2,1,0,0]],"ranges":[[4,4],[9,12]],"bytes":nak(2,1,0,(4,4),(9,12)).hex()},
 {"what":"GONE","streams":[[3,1,12]],"bytes":(gone(3,1,12)+bytes([9])*64).hex()},
]
doc={"source":"computed from the layouts in delivery/src/multicast/{frame,origin}.rs by a second implementation (Python, hashlib and cryptography)",
 "frames":frames,"controls":controls,"signed":{"seed":seed.hex(),"epoch_counter":1,"epoch_hash":0xE1,"domain":domain,"slot":slot,"batches":batches}}
open(pathlib.Path(__file__).with_name("records.json"),"w").write(json.dumps(doc,indent=1,ensure_ascii=False)+"\n")
