// Command secure writes a record with franz-go as somebody: secure BOOTSTRAP TOPIC LOGIN.
//
// LOGIN is JSON. It prints "ok", or "refused" and what franz-go had to say.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

type login struct {
	Mechanism, CA, Certificate, User, Password, Token string
	IsToken                                           bool
}

func main() {
	var who login
	if err := json.Unmarshal([]byte(os.Args[3]), &who); err != nil {
		panic(err)
	}
	if err := attempt(os.Args[1], os.Args[2], who); err != nil {
		fmt.Println("refused", err)
		return
	}
	fmt.Println("ok")
}

func attempt(bootstrap, topic string, who login) error {
	secured, err := encryption(who)
	if err != nil {
		return err
	}
	options := []kgo.Opt{
		kgo.SeedBrokers(bootstrap), kgo.DialTLSConfig(secured), kgo.RequestRetries(2),
	}
	if mechanism := who.mechanism(); mechanism != nil {
		options = append(options, kgo.SASL(mechanism))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := client.Ping(ctx); err != nil {
		return err
	}
	record := &kgo.Record{Topic: topic, Key: []byte("key"), Value: []byte("value")}
	return client.ProduceSync(ctx, record).FirstErr()
}

func encryption(who login) (*tls.Config, error) {
	trusted, err := os.ReadFile(who.CA)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(trusted)
	made := &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	if who.Certificate != "" {
		own, err := tls.LoadX509KeyPair(who.Certificate, who.Certificate)
		if err != nil {
			return nil, err
		}
		made.Certificates = []tls.Certificate{own}
	}
	return made, nil
}

func (who login) mechanism() sasl.Mechanism {
	secret := scram.Auth{User: who.User, Pass: who.Password, IsToken: who.IsToken}
	switch who.Mechanism {
	case "PLAIN":
		return plain.Auth{User: who.User, Pass: who.Password}.AsMechanism()
	case "SCRAM-SHA-256":
		return secret.AsSha256Mechanism()
	case "SCRAM-SHA-512":
		return secret.AsSha512Mechanism()
	case "OAUTHBEARER":
		return oauth.Auth{Token: who.Token}.AsMechanism()
	}
	return nil
}
