module durable-crawler.io/tests/pause

go 1.26
