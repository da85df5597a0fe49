-- What the generation $1 was made of counts no more: it is made again.
UPDATE dataset_partitions SET inputs_hash = NULL WHERE dataset_version = $1
