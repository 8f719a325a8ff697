package main

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/cli"
	"github.com/fairlead/fairlead/scheme/cheetah"
)

func newCookieCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "cookie", Short: "Plan how wide a VIP's cookies are"}
	cmd.AddCommand(newCookiePlanCommand())
	return cmd
}

// cookieWidth is a row of `cookie plan -o json`.
type cookieWidth struct {
	Bits int `json:"cookie_bits"`
	// Slots is how many servers cookies can name, those that rest among them.
	Slots int `json:"slots"`
	// IdleSeconds is how long a connection may be silent, KeepaliveSeconds after how
	// much silence the agent has the server ask the client.
	IdleSeconds      float64 `json:"idle_seconds"`
	KeepaliveSeconds float64 `json:"keepalive_seconds"`
	// Guesses is how many cookies somebody without the key tries until one of them leads
	// to a server that he has chosen, on average.
	Guesses int  `json:"guesses"`
	Fits    bool `json:"fits"`
}

type cookiePlan struct {
	Servers int           `json:"servers"`
	Idle    string        `json:"idle"`
	Bits    int           `json:"cookie_bits,omitempty"` // the fewest that fit; 0: none does
	Widths  []cookieWidth `json:"widths"`
}

func newCookiePlanCommand() *cobra.Command {
	var servers, seatBits int
	var idle time.Duration
	var output string
	cmd := &cobra.Command{
		Use:   "plan",
		Short: "Say which cookie_bits so many servers and so much silence take",
		Long: `Lists the widths that a cookie in a TCP timestamp can have: how many slots it names
(each server has one, and a removed server's rests until its connections' time is over),
how long a connection may be silent before its timestamp is too old to be read (the agent's
keepalives come well before that, and renew it), and how many cookies somebody who does not
have the key tries, on average, to reach a server of his choice with packets of one
connection. The width that fits with the fewest bits is marked: it bears the longest silence.

Exit status 1 if none fits.`,
		Example: "  fairlead cookie plan --servers 300 --idle 10m\n  fairlead cookie plan --servers 40 --idle 1m --seat-bits 8 -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cli.CheckOutput(output); err != nil {
				return err
			}
			switch most := (cheetah.Layout{Bits: cheetah.MaxBits}).Slots(); {
			case servers < 1 || servers > most:
				return cli.Usagef("--servers %d: must be 1 to %d, the slots that the widest cookie names", servers, most)
			case idle < 0:
				return cli.Usagef("--idle %v: must not be negative", idle)
			case seatBits < 0 || seatBits > cheetah.MaxBits-2:
				return cli.Usagef("--seat-bits %d: must be 0 to %d", seatBits, cheetah.MaxBits-2)
			}
			p := planCookie(servers, seatBits, idle)
			if err := cli.PrintAs(cmd.OutOrStdout(), output, p, p.print); err != nil {
				return err
			}
			if p.Bits == 0 {
				return fmt.Errorf("no cookie names %d slots and bears %v of silence: keepalives, which agents send, make a shorter one do where clients answer them; seats (--seat-bits) and slots share its bits; scheme jet has none", servers, idle)
			}
			return nil
		},
	}
	cmd.Flags().IntVar(&servers, "servers", 0, "how many servers the VIP may ever have at a time, with those whose slots rest")
	cmd.Flags().DurationVar(&idle, "idle", 0, "longest silence of a connection, keepalives included, such as 90s or 10m")
	cmd.Flags().IntVar(&seatBits, "seat-bits", 0, "bits of a seat (scheme cheetah-stateful)")
	_ = cmd.MarkFlagRequired("servers")
	cli.OutputFlag(cmd, &output)
	return cmd
}

func planCookie(servers, seatBits int, idle time.Duration) *cookiePlan {
	p := &cookiePlan{Servers: servers, Idle: idle.String()}
	for bits := cheetah.MinBits; bits <= cheetah.MaxBits; bits++ {
		l := cheetah.Layout{Bits: bits, SeatBits: seatBits}
		if l.Validate() != nil {
			continue
		}
		// Half of all fields are of the epoch in which nobody has a cookie.
		w := cookieWidth{bits, l.Slots(), l.IdleLimit().Seconds(), l.Keepalive().Seconds(), 2 * l.Slots(), l.Slots() >= servers && l.IdleLimit() >= idle}
		if w.Fits && p.Bits == 0 {
			p.Bits = bits
		}
		p.Widths = append(p.Widths, w)
	}
	return p
}

func (p *cookiePlan) print(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "COOKIE_BITS\tSLOTS\tIDLE LIMIT\tKEEPALIVE AFTER\tGUESSES\tFITS")
	for _, c := range p.Widths {
		fits := "no"
		switch {
		case c.Bits == p.Bits:
			fits = "yes: cookie_bits: " + fmt.Sprint(c.Bits)
		case c.Fits:
			fits = "yes"
		}
		seconds := func(s float64) time.Duration { return time.Duration(s * float64(time.Second)).Truncate(time.Second) }
		fmt.Fprintf(t, "%d\t%d\t%v\t%v\t%d\t%s\n", c.Bits, c.Slots, seconds(c.IdleSeconds), seconds(c.KeepaliveSeconds), c.Guesses, fits)
	}
	return t.Flush()
}
