-- These read whole tables, which is the one case in which an index does not help.
SET LOCAL enable_seqscan = on
