// Load on one NATS server with JetStream: publishers that run ahead of one consumer by a window, as
// `sealcast bench brokers` does.
//
//	nats_load URL SIZE WINDOW PUBLISHERS SECONDS [paced]
//
// Makes a stream of files with one replica. A message counts when it was acknowledged and came to an ordered consumer,
// each publisher's in its order. Warms up for a second, measures for SECONDS, and prints one JSON object. `paced`: one
// message at a time, 20 a second.
package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"log"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	subject = "load.a"
	warmUp  = time.Second
)

var sent, acknowledged, delivered atomic.Int64

// Messages that were acknowledged and delivered.
func done() int64 { return min(acknowledged.Load(), delivered.Load()) }

func main() {
	log.SetFlags(0)
	if len(os.Args) < 6 {
		log.Fatal("nats_load URL SIZE WINDOW PUBLISHERS SECONDS [paced]")
	}
	url, size, window := os.Args[1], max(24, number(os.Args[2])), number(os.Args[3])
	publishers, seconds, paced := number(os.Args[4]), number(os.Args[5]), len(os.Args) > 6
	ctx := context.Background()
	epoch := time.Now()

	reading := must(jetstream.New(connect(url)))
	stream := must(reading.CreateStream(ctx, jetstream.StreamConfig{
		Name: "load", Subjects: []string{"load.>"}, Storage: jetstream.FileStorage, Replicas: 1,
	}))
	consumer := must(stream.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{}))
	var from atomic.Int64
	from.Store(1 << 62)
	var took []int64
	var lock sync.Mutex
	next := make([]uint64, publishers)
	reader := must(consumer.Consume(func(message jetstream.Msg) {
		body := message.Data()
		n, at, publisher := word(body, 0), int64(word(body, 8)), word(body, 16)
		if n != next[publisher] {
			log.Fatalf("message %d came, not %d", n, next[publisher])
		}
		next[publisher]++
		if at >= from.Load() {
			lock.Lock()
			took = append(took, int64(time.Since(epoch))-at)
			lock.Unlock()
		}
		delivered.Add(1)
	}))

	most := int64(window)
	if paced {
		most = 1
	}
	writing := make([]jetstream.JetStream, publishers)
	for i := range writing {
		failed := jetstream.WithPublishAsyncErrHandler(func(_ jetstream.JetStream, _ *nats.Msg, why error) {
			log.Fatal("publishing: ", why)
		})
		acked := jetstream.WithPublishAsyncAckHandler(func(jetstream.JetStream, *nats.Msg, *jetstream.PubAck) {
			acknowledged.Add(1)
		})
		writing[i] = must(jetstream.New(connect(url), failed, acked, jetstream.WithPublishAsyncMaxPending(window)))
	}
	numbers := make([]uint64, publishers)
	body := make([]byte, size)
	var measuring time.Time
	var before int64
	for i := 0; ; i = (i + 1) % publishers {
		now := time.Now()
		if measuring.IsZero() && now.Sub(epoch) >= warmUp && delivered.Load() > 0 {
			measuring, before = now, done()
			from.Store(int64(now.Sub(epoch)))
		}
		if !measuring.IsZero() && now.Sub(measuring) >= time.Duration(seconds)*time.Second {
			break
		}
		for sent.Load()-done() >= most {
			time.Sleep(100 * time.Microsecond)
		}
		if paced {
			time.Sleep(50 * time.Millisecond)
		}
		binary.BigEndian.PutUint64(body, numbers[i])
		binary.BigEndian.PutUint64(body[8:], uint64(time.Since(epoch)))
		binary.BigEndian.PutUint64(body[16:], uint64(i))
		numbers[i]++
		sent.Add(1)
		must(writing[i].PublishAsync(subject, body))
	}
	rate := float64(done()-before) / time.Since(measuring).Seconds()
	for done() < sent.Load() {
		time.Sleep(time.Millisecond)
	}
	reader.Stop()
	lock.Lock()
	slices.Sort(took)
	share := func(share float64) float64 {
		if len(took) == 0 {
			return 0
		}
		return float64(took[int(float64(len(took)-1)*share)]) / 1e3
	}
	fmt.Printf("{\"publications_per_second\":%.1f,\"p50_us\":%.1f,\"p99_us\":%.1f}\n", rate, share(0.5), share(0.99))
}

func connect(url string) *nats.Conn {
	return must(nats.Connect(url, nats.RetryOnFailedConnect(true), nats.MaxReconnects(100), nats.ReconnectWait(100*time.Millisecond)))
}

func number(text string) int { return must(strconv.Atoi(text)) }

func word(body []byte, at int) uint64 { return binary.BigEndian.Uint64(body[at:]) }

func must[T any](value T, why error) T {
	if why != nil {
		log.Fatal(why)
	}
	return value
}
