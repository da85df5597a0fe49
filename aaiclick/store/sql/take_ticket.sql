SELECT nextval('dataset_tickets')
