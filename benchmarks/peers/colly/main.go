// A crawl by Colly that keeps nothing: told by a JSON file what to crawl, it prints how many pages it got.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"

	"github.com/gocolly/colly/v2"
)

type job struct {
	Seeds   []string `json:"seeds"`
	Hosts   []string `json:"hosts"`
	Workers int      `json:"workers"`
	PerHost int      `json:"per_host"`
}

func main() {
	if err := crawl(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func crawl(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var wanted job
	if err := json.Unmarshal(text, &wanted); err != nil {
		return err
	}
	var authorities []string
	for _, host := range wanted.Hosts {
		authorities = append(authorities, strings.Split(host, ":")[0])
	}
	c := colly.NewCollector(colly.Async(true), colly.AllowedDomains(authorities...), colly.MaxBodySize(4<<20))
	c.IgnoreRobotsTxt = false
	for _, host := range wanted.Hosts {
		rule := &colly.LimitRule{DomainGlob: host, Parallelism: wanted.PerHost}
		if err := c.Limit(rule); err != nil {
			return err
		}
	}
	var pages atomic.Int64
	c.OnResponse(func(r *colly.Response) {
		if strings.HasPrefix(r.Headers.Get("Content-Type"), "text/html") {
			pages.Add(1)
		}
	})
	c.OnHTML("a[href], area[href]", func(e *colly.HTMLElement) {
		// Colly takes URLs that differ in the fragment alone for different pages.
		link, _, _ := strings.Cut(e.Request.AbsoluteURL(e.Attr("href")), "#")
		// One that was seen, leaves the hosts or is no URL of the web is an error here, and meant to be.
		_ = e.Request.Visit(link)
	})
	for _, seed := range wanted.Seeds {
		// A page of the seed before it may have led there already.
		if err := c.Visit(seed); err != nil && !errors.As(err, new(*colly.AlreadyVisitedError)) {
			return err
		}
	}
	c.Wait()
	return json.NewEncoder(os.Stdout).Encode(map[string]int64{"pages": pages.Load()})
}
