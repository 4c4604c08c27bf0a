"""The contract between the crawler and its operator: the CrawlJob's spec and status, exit codes, run summary.

Both sides import this package; it imports neither of them. Every field of the spec is declared once, in
``crawljob.spec``; the CRD, the command line, the file that the Pod reads and the reference table are derived from it.
"""

API_GROUP = "durable-crawler.io"
API_VERSION = "v1alpha1"
KIND = "CrawlJob"
PLURAL = "crawljobs"

__version__ = "0.1.0"
