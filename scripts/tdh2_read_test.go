// Lets smartcontractkit/tdh2 read what `crypto/src/tdh2/sckt.rs` wrote; scripts/tdh2-go.sh puts it into a checkout.
package tdh2

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"os"
	"testing"
)

func TestReadsSealcast(t *testing.T) {
	text, err := os.ReadFile(os.Getenv("SEALCAST_TDH2_OUT"))
	if err != nil {
		t.Fatal(err)
	}
	var file map[string]json.RawMessage
	if err := json.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	var pk PublicKey
	var ct Ciphertext
	if err := pk.Unmarshal(file["pk"]); err != nil {
		t.Fatal(err)
	}
	if err := ct.Unmarshal(file["ct"]); err != nil {
		t.Fatal(err)
	}
	if err := ct.Verify(&pk); err != nil {
		t.Fatal(err)
	}
	var shares []*DecryptionShare
	for _, name := range []string{"ds0", "ds1", "ds2"} {
		share := new(DecryptionShare)
		if err := share.Unmarshal(file[name]); err != nil {
			t.Fatal(err)
		}
		if err := VerifyShare(&pk, &ct, share); err != nil {
			t.Fatal(name, err)
		}
		shares = append(shares, share)
	}
	var encoded string
	if err := json.Unmarshal(file["msg"], &encoded); err != nil {
		t.Fatal(err)
	}
	expect, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		t.Fatal(err)
	}
	for _, two := range [][]*DecryptionShare{shares[:2], shares[1:]} {
		message, err := ct.CombineShares(pk.group, two, 2, 4)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(message, expect) {
			t.Fatal("another message")
		}
	}
}
