"""The demonstration: a small site with faults in it, a crawl that is killed half-way, its resumption, and the proof."""
